// Package conf reads strict configuration files. What a file may hold is a struct type with tags ([Schema]); what it holds
// comes from four layers, the later ones winning: defaults, the file, environment variables, key=value flags. Lists are
// replaced, never merged. Unknown keys, values of the wrong kind, keys given twice and values out of range are all reported
// at once, each with its place ([Fault]).
//
// The package knows nothing of what is configured. [Duration], [Size] and [Secret] are its kinds of values beside Go's own.
package conf
