// Package serving answers requests for predictions with models that were exported ([export/native]), as TensorFlow Serving does: over HTTP and JSON ([Server.Handler]) and
// over gRPC ([Server.GRPC]), of several models, each with versions that come and go while it serves.
//
//	folder of a model, 1/ 2/ 3/ ─> Models: which versions are open ─> version: the model with its rows ─> runner: parse ─> lookup ─> session
//
// A version is open while requests use it, and closed when it is no longer wanted and its last request has ended. One that cannot be opened is refused with its reason, and those
// that serve stay.
//
// Examples come in four forms ([Input]), and their predictions are those of an evaluation of the snapshot, bit for bit.
package serving
