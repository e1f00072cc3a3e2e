// Package components has the sources, models, optimizers, places for bad rows and sinks of monolith, one a file, and their lists.
package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
)

// Or returns a set, or everything when it has no sources and no models.
func Or(set component.Set) component.Set {
	if set.Sources == nil && set.Models == nil {
		return All()
	}
	if set.Blocks == nil {
		set.Blocks = blocks.Kinds()
	}
	if set.Losses == nil {
		set.Losses = loss.All()
	}
	if set.Metrics == nil {
		set.Metrics = metric.All()
	}
	return set
}

// All returns everything that a job may name. The caller owns the lists and may add to them.
func All() component.Set {
	return component.Set{
		Sources: []component.Source{
			{Name: "kafka", Doc: "reads the partitions of a topic; each is a split.", New: func() component.SourceConfig { return &Kafka{} }, FromTarget: kafkaTarget},
			{Name: "tfrecord", Doc: "reads TFRecord files; each is a split.", New: func() component.SourceConfig { return &TFRecord{} }, Recognise: isTFRecord},
			{Name: "parquet", Doc: "reads the row groups of Parquet files; each is a split.", New: func() component.SourceConfig { return &Parquet{} }, Recognise: isParquet},
			{Name: "text", Doc: "reads the lines of text files (libfm, csv, tsv, jsonl); each file is a split.", New: func() component.SourceConfig { return &Text{} }, Lines: true},
			{Name: "synthetic", Doc: "makes a stream of clicks whose best possible AUC is known.", New: func() component.SourceConfig { return &Synthetic{} }, FromTarget: syntheticTarget},
		},
		Models: []component.Model{
			{Name: "lr", Doc: "logistic regression.", New: func() component.ModelConfig { return &LR{} }},
			{Name: "fm", Doc: "a factorization machine (Rendle, 2010).", New: func() component.ModelConfig { return &FM{} }},
			{Name: "fwfm", Doc: "a factorization machine with a weight for each pair of features (Pan et al., 2018).", New: func() component.ModelConfig { return &FwFM{} }},
			{Name: "ffm", Doc: "a factorization machine with a vector of each id for each other feature (Juan et al., 2016).", New: func() component.ModelConfig { return &FFM{} }},
			{Name: "wide_deep", Doc: "logistic regression beside a multi-layer perceptron (Cheng et al., 2016).", New: func() component.ModelConfig { return &WideDeep{} }},
			{Name: "deepfm", Doc: "a factorization machine beside a multi-layer perceptron over shared embeddings (Guo et al., 2017).", New: func() component.ModelConfig { return &DeepFM{} }},
			{Name: "nfm", Doc: "a multi-layer perceptron over the sum of the products of all pairs of vectors (He and Chua, 2017).", New: func() component.ModelConfig { return &NFM{} }},
			{Name: "afm", Doc: "a factorization machine whose pairs are weighed by attention (Xiao et al., 2017).", New: func() component.ModelConfig { return &AFM{} }},
			{Name: "dcn", Doc: "a cross network of vectors of weights beside a multi-layer perceptron (Wang et al., 2017).", New: func() component.ModelConfig { return &DCN{} }},
			{Name: "dcnv2", Doc: "a cross network beside a multi-layer perceptron (Wang et al., 2021).", New: func() component.ModelConfig { return &DCNv2{} }},
			{Name: "xdeepfm", Doc: "a compressed interaction network beside a multi-layer perceptron (Lian et al., 2018).", New: func() component.ModelConfig { return &XDeepFM{} }},
			{Name: "autoint", Doc: "self-attention among the features beside a multi-layer perceptron (Song et al., 2019).", New: func() component.ModelConfig { return &AutoInt{} }},
			{Name: "fibinet", Doc: "a multi-layer perceptron over bilinear interactions of vectors, plain and weighed (Huang, Zhang and Zhang, 2019).", New: func() component.ModelConfig { return &FiBiNET{} }},
			{Name: "dlrm", Doc: "a multi-layer perceptron over the inner products of all pairs of vectors (Naumov et al., 2019).", New: func() component.ModelConfig { return &DLRM{} }},
			{Name: "masknet", Doc: "a multi-layer perceptron over blocks that multiply the vectors by masks made of the example (Wang, She and Zhang, 2021).", New: func() component.ModelConfig { return &MaskNet{} }},
			{Name: "finalmlp", Doc: "two multi-layer perceptrons joined by the products of their outputs (Mao et al., 2023).", New: func() component.ModelConfig { return &FinalMLP{} }},
			{Name: "dssm", Doc: "two towers, of the user and of the item, compared by their cosine (Huang et al., 2013).", New: func() component.ModelConfig { return &DSSM{} }},
			{Name: "wukong", Doc: "a multi-layer perceptron over layers that make vectors of the products of vectors and of their sums (Zhang et al., 2024).", New: func() component.ModelConfig { return &Wukong{} }},
			{Name: "shared_bottom", Doc: "a multi-layer perceptron that any number of heads share (Caruana, 1997; Ma et al., 2018, figure 1a), with attention over sequences (Zhou et al., 2018).", New: func() component.ModelConfig { return &SharedBottom{} }},
			{Name: "mmoe", Doc: "a mixture of experts that any number of heads share, each by a gate of its own (Ma et al., 2018).", New: func() component.ModelConfig { return &MMoE{} }},
			{Name: "ple", Doc: "levels of experts, some of each head alone and some of all (Tang et al., 2020).", New: func() component.ModelConfig { return &PLE{} }},
			{Name: "esmm", Doc: "heads of which each presupposes the one before, as a purchase does a click (Ma et al., 2018, Entire Space Multi-Task Model).", New: func() component.ModelConfig { return &ESMM{} }},
			{Name: "snr", Doc: "levels of experts whose connections learn to be open or closed (Ma et al., 2019, Sub-Network Routing).", New: func() component.ModelConfig { return &SNR{} }},
			{Name: "dbmtl", Doc: "heads that depend on each other, in their order (Wang et al., 2019, Deep Bayesian Multi-Target Learning).", New: func() component.ModelConfig { return &DBMTL{} }},
			{Name: "pepnet", Doc: "multi-layer perceptrons whose units are louder or softer by user and item, over vectors that are so by the domain (Chang et al., 2023).", New: func() component.ModelConfig { return &PEPNet{} }},
			{Name: "rankmixer", Doc: "blocks in which tokens made of the features exchange their parts, each with a perceptron of its own (Zhu et al., 2025).", New: func() component.ModelConfig { return &RankMixer{} }},
			{Name: "din", Doc: "a multi-layer perceptron over features and histories that are weighed by what is looked at now (Zhou et al., 2018).", New: func() component.ModelConfig { return &DIN{} }},
			{Name: "dien", Doc: "din, where a history is what an interest evolves to by recurrent units (Zhou et al., 2019).", New: func() component.ModelConfig { return &DIEN{} }},
			{Name: "hstu", Doc: "a multi-layer perceptron over features and histories that go through sequential transduction units (Zhai et al., 2024).", New: func() component.ModelConfig { return &HSTU{} }},
			{Name: "graph", Doc: "a model that was written down, from a file, or one that is composed of named blocks.", New: func() component.ModelConfig { return &Graph{} }},
		},
		Optimizers: []component.Optimizer{
			{Name: "auto", Doc: "the rule that the model chooses: FTRL for linear weights and Adagrad for vectors, with rates by the number of sparse features; Adam for layers.", New: func() component.OptimizerConfig { return &Auto{} }},
			{Name: "adam", Doc: "the rule of Kingma and Ba (2015).", New: func() component.OptimizerConfig { return &Adam{} }},
			{Name: "adagrad", Doc: "the rule of Duchi, Hazan and Singer (2011).", New: func() component.OptimizerConfig { return &Adagrad{} }},
			{Name: "sgd", Doc: "stochastic gradient descent.", New: func() component.OptimizerConfig { return &SGD{} }},
			{Name: "ftrl", Doc: "the rule of McMahan et al. (2013).", New: func() component.OptimizerConfig { return &FTRL{} }},
			{Name: "adagradw", Doc: "Adagrad with decoupled weight decay (Loshchilov and Hutter, 2019).", New: func() component.OptimizerConfig { return &AdagradW{} }},
			{Name: "lazy_adagradw", Doc: "Adagrad with weight decay by the time that passes (Carpenter, 2008), so that seldom ids forget as fast as others.", New: func() component.OptimizerConfig { return &LazyAdagradW{} }},
			{Name: "rowwise_adagrad", Doc: "Adagrad with one accumulator for a vector (Gupta, Bengio and Weston, 2014), which needs little memory.", New: func() component.OptimizerConfig { return &RowAdagrad{} }},
			{Name: "group_adagrad", Doc: "Adagrad that sets whole vectors to 0 (Yue et al., 2021).", New: func() component.OptimizerConfig { return &GroupAdagrad{} }},
			{Name: "group_ftrl", Doc: "FTRL that sets whole vectors to 0 (Yang et al., 2010).", New: func() component.OptimizerConfig { return &GroupFTRL{} }},
			{Name: "momentum", Doc: "gradient descent with momentum, or with that of Nesterov (Sutskever et al., 2013).", New: func() component.OptimizerConfig { return &Momentum{} }},
			{Name: "rmsprop", Doc: "the rule of Tieleman and Hinton (2012).", New: func() component.OptimizerConfig { return &RMSprop{} }},
			{Name: "adadelta", Doc: "the rule of Zeiler (2012).", New: func() component.OptimizerConfig { return &Adadelta{} }},
			{Name: "amsgrad", Doc: "the rule of Reddi, Kale and Kumar (2018).", New: func() component.OptimizerConfig { return &AMSGrad{} }},
			{Name: "adamw", Doc: "Adam with decoupled weight decay (Loshchilov and Hutter, 2019).", New: func() component.OptimizerConfig { return &AdamW{} }},
			{Name: "dense_adam", Doc: "Adam whose rows continue between the batches that have them, as those of an embedding matrix with dense gradients (Kingma and Ba, 2015).", New: func() component.OptimizerConfig { return &DenseAdam{} }},
			{Name: "adamom", Doc: "momentum over a mean of squares that forgets slowly: bytedance/monolith's rule for dense parameters.", New: func() component.OptimizerConfig { return &Adamom{} }},
			{Name: "lamb", Doc: "Adam with steps as long as the tensor (You et al., 2020), for large batches.", New: func() component.OptimizerConfig { return &LAMB{} }},
			{Name: "shampoo", Doc: "gradients of matrices preconditioned from both sides (Gupta, Koren and Singer, 2018), for `optimizer.dense` alone.", New: func() component.OptimizerConfig { return &Shampoo{} }},
		},
		DeadLetters: []component.DeadLetter{
			{Name: "file", Doc: "a file of JSON lines.", New: func() component.DeadLetterConfig { return &FileLetters{} }},
			{Name: "kafka", Doc: "a topic.", New: func() component.DeadLetterConfig { return &KafkaLetters{} }},
		},
		Sinks: []component.Sink{
			{Name: "parquet", Doc: "a folder of Parquet files.", New: func() component.SinkConfig { return &ParquetSink{} }},
			{Name: "arrow", Doc: "a folder of Arrow files.", New: func() component.SinkConfig { return &ArrowSink{} }},
			{Name: "jsonl", Doc: "a folder of files of JSON lines.", New: func() component.SinkConfig { return &JSONLSink{} }},
			{Name: "tsv", Doc: "a folder of files of lines with fields between delimiters.", New: func() component.SinkConfig { return &TSVSink{} }},
			{Name: "tfrecord", Doc: "a folder of TFRecord files of tf.Example.", New: func() component.SinkConfig { return &TFRecordSink{} }},
			{Name: "kafka", Doc: "a topic of JSON objects.", New: func() component.SinkConfig { return &KafkaSink{} }},
		},
		Blocks:  blocks.Kinds(),
		Losses:  loss.All(),
		Metrics: metric.All(),
	}
}
