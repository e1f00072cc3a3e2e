// Package example reads and writes tf.Example records (tensorflow/core/example/example.proto, feature.proto) on the wire,
// without reflection and without building messages:
//
//	Example   { Features features = 1 }
//	Features  { map<string, Feature> feature = 1 }       entry { string key = 1; Feature value = 2 }
//	Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }
//	BytesList { repeated bytes value = 1 }   FloatList { repeated float value = 1 }   Int64List { repeated int64 value = 1 }
//
// What a [Scanner] finds is what a protobuf library finds, also for records that a library would never write: entries
// in any order, value before key, repeated keys (the last wins), messages in pieces (they merge), packed and unpacked
// lists, unknown fields.
package example
