// Package forward writes the forward pass of a model as a few operators on tensors, which formats that describe computations have ([Target]): one
// lowering for all of them, so that an operator of a model is exported by all formats or by none.
//
// Sparse features come as flat entries: ids [entries], the row of each [entries], and their values [entries] where the feature has values. Nothing is
// padded; [Unpad] makes entries of a matrix. Rows of a table are looked up once, for all of its features together. An id without a row gets what training
// would begin its row with, computed from the id by the same hash, so predictions are those of a lookup on the parameter server.
package forward
