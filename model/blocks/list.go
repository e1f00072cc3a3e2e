package blocks

// Listed is a kind of blocks by its name.
type Listed struct {
	// Name is what a block's kind is called, Doc a sentence for the reference page.
	Name, Doc string
	// New returns a new section of the kind.
	New func() Kind
}

// Kinds lists the kinds of blocks. Adding one is a struct and a line here. The caller owns the list.
func Kinds() []Listed {
	return []Listed{
		{"embedding", "the vectors of sparse features, each pooled by its combiner, side by side.", func() Kind { return &Embedding{} }},
		{"sequence", "the vectors of the entries of a sparse feature, in their order.", func() Kind { return &Sequence{} }},
		{"numbers", "the numbers of dense features, side by side.", func() Kind { return &Numbers{} }},
		{"number_vectors", "a vector for each number of dense features, multiplied by it.", func() Kind { return &NumberVectors{} }},
		{"linear", "the first-order part of a model: the weights of ids, weighted numbers and a bias, added up: logistic regression.", func() Kind { return &Linear{} }},

		{"dense", "a fully connected layer over all inputs side by side.", func() Kind { return &Dense{} }},
		{"bias", "a number added to each column, learned.", func() Kind { return &Bias{} }},
		{"mlp", "a multi-layer perceptron over all inputs side by side.", func() Kind { return &MLP{} }},
		{"residual", "a multi-layer perceptron whose input is added to what it gives (Shan et al., 2016, Deep Crossing; He et al., 2016).", func() Kind { return &Residual{} }},
		{"activation", "a function of each number.", func() Kind { return &Activation{} }},
		{"layer_norm", "normalises all numbers of a row, or those of each vector (Ba, Kiros and Hinton, 2016).", func() Kind { return &LayerNorm{} }},
		{"batch_norm", "normalises each column by its mean and variance in the batch (Ioffe and Szegedy, 2015).", func() Kind { return &BatchNorm{} }},
		{"dropout", "sets a share of the numbers to 0 while training.", func() Kind { return &Dropout{} }},
		{"concat", "all inputs side by side.", func() Kind { return &Concat{} }},
		{"columns", "some of the numbers of a value.", func() Kind { return &Columns{} }},
		{"sum", "all inputs added up.", func() Kind { return &Sum{} }},
		{"mean", "the mean of all inputs, number by number.", func() Kind { return &Mean{} }},
		{"max", "the largest of all inputs, number by number.", func() Kind { return &Max{} }},
		{"product", "all inputs multiplied, number by number.", func() Kind { return &Product{} }},
		{"scale", "a number times the input plus another, both learned.", func() Kind { return &Scale{} }},
		{"stop_gradient", "the input, through which nothing before it learns.", func() Kind { return &StopGradient{} }},

		{"fm", "the inner products of all pairs, added up: the second-order part of a factorization machine (Rendle, 2010).", func() Kind { return &FM{} }},
		{"bi_interaction", "the products of all pairs of vectors, added up to one vector (He and Chua, 2017).", func() Kind { return &BiInteraction{} }},
		{"dots", "the inner products of all pairs of vectors, side by side.", func() Kind { return &Dots{} }},
		{"pair_attention", "the products of all pairs of vectors, added up with weights by attention (Xiao et al., 2017).", func() Kind { return &PairAttention{} }},
		{"cross", "a stack of cross layers with matrices, whole or of low rank (Wang et al., 2021), or vectors (Wang et al., 2017) of weights.", func() Kind { return &Cross{} }},
		{"cin", "the compressed interaction network of xDeepFM (Lian et al., 2018).", func() Kind { return &CIN{} }},
		{"senet", "vectors weighed by what their means say of all (Huang, Zhang and Zhang, 2019).", func() Kind { return &SENet{} }},
		{"razor", "vectors multiplied by shares that learn which features, and how many numbers of each, are of use (Yao et al., 2022, i-Razor).", func() Kind { return &Razor{} }},
		{"feature_gates", "vectors multiplied by gates that learn to be open or closed (Louizos, Welling and Kingma, 2018): which features are of use.", func() Kind { return &FeatureGates{} }},
		{"bilinear", "the bilinear interactions of all pairs of vectors (Huang, Zhang and Zhang, 2019).", func() Kind { return &Bilinear{} }},
		{"self_attention", "the interacting layers of AutoInt (Song et al., 2019).", func() Kind { return &SelfAttention{} }},
		{"ffm", "the inner products of all pairs of vectors, each by the part that it has for the other, added up (Juan et al., 2016).", func() Kind { return &FFM{} }},
		{"fold", "one vector of all: their sum, their mean or the largest of each number.", func() Kind { return &Fold{} }},
		{"mask", "a layer over an input multiplied by what an example says of it: a block of MaskNet (Wang, She and Zhang, 2021).", func() Kind { return &Mask{} }},
		{"fusion", "two values joined by all products of their numbers (Mao et al., 2023, FinalMLP).", func() Kind { return &Fusion{} }},
		{"group_int", "the products of each vector of one value with each of another, or their inner products, as they are or weighed by attention.", func() Kind { return &GroupInt{} }},
		{"all_int", "the inner products of all vectors with weighted sums of them.", func() Kind { return &AllInt{} }},
		{"cdot", "the inner products of all vectors with what a perceptron compresses their sums to.", func() Kind { return &CDot{} }},
		{"can", "a perceptron whose weights are another value of the row (Bian et al., 2022); over the entries of a sequence too.", func() Kind { return &CAN{} }},
		{"wukong", "a layer that makes vectors of the products of vectors and of their sums (Zhang et al., 2024).", func() Kind { return &Wukong{} }},
		{"tokens", "vectors of equal width, each of a part of the input (Zhu et al., 2025).", func() Kind { return &Tokens{} }},
		{"rankmixer", "a layer in which vectors exchange their parts, each with a perceptron of its own (Zhu et al., 2025).", func() Kind { return &RankMixer{} }},
		{"gate", "the first input, multiplied by numbers from 0 to 2 that the second says (Chang et al., 2023).", func() Kind { return &Gate{} }},
		{"lhuc", "a multi-layer perceptron over the first input, each layer with a gate by the second (Swietojanski and Renals, 2014).", func() Kind { return &LHUC{} }},
		{"batch_softmax", "how probable the item of a row is among those of the batch, by the cosine of two values (Yi et al., 2019): two towers that learn from what was clicked alone.", func() Kind { return &BatchSoftmax{} }},
		{"cosine", "the cosine of two values, times a number plus another, both learned: two towers meet (Huang et al., 2013).", func() Kind { return &Cosine{} }},

		{"pool", "the entries of a sequence made one vector.", func() Kind { return &Pool{} }},
		{"first", "the first entries of a sequence, side by side.", func() Kind { return &First{} }},
		{"attention", "the entries of a sequence, added up with weights by what they have to do with a query (Zhou et al., 2018, DIN).", func() Kind { return &Attention{} }},
		{"target_attention", "the entries of a sequence, added up by several heads that compare them with a query (Vaswani et al., 2017).", func() Kind { return &TargetAttention{} }},
		{"hstu", "what the last of some layers makes of a query behind a sequence, in which each entry sees those before it (Zhai et al., 2024).", func() Kind { return &HSTU{} }},
		{"dmr", "what the entries of a sequence and their places have to do with an item (Lyu et al., 2020, Deep Match to Rank).", func() Kind { return &DMR{} }},
		{"dien", "what the interest evolves to that a sequence shows (Zhou et al., 2019).", func() Kind { return &DIEN{} }},

		{"mmoe", "perceptrons that all tasks share, mixed by a gate of each (Ma et al., 2018).", func() Kind { return &MMoE{} }},
		{"ple", "levels of perceptrons, some of one task and some of all (Tang et al., 2020).", func() Kind { return &PLE{} }},
		{"snr", "levels of perceptrons whose connections learn to be open or closed (Ma et al., 2019).", func() Kind { return &SNR{} }},
		{"grad_norm", "a value that heads share, where their losses are weighed so that its gradients are of one length (Chen et al., 2018).", func() Kind { return &GradNorm{} }},
		{"mixture", "experts added up with weights by what the first input says of them (Jacobs et al., 1991).", func() Kind { return &Mixture{} }},
		{"relations", "for each task a perceptron over its input and what the tasks before it came to (Wang et al., 2019).", func() Kind { return &Relations{} }},
		{"both", "the logit of two things happening, given that of the first and that of the second where the first has (Ma et al., 2018, ESMM).", func() Kind { return &Both{} }},
	}
}
