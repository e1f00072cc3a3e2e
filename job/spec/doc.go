// Package spec says what a job file may hold ([Config]) and checks it. It does no training and links none of what does:
// reading a job costs nothing but a YAML parser.
//
// A job file is one YAML document. It is strict: unknown keys, values of the wrong kind, keys given twice and values out
// of range are all reported at once, each with file, line and key path. Values come from four layers, the later ones
// winning: defaults, the file, MONOLITH_* environment variables, --set flags. Lists are replaced, never merged.
package spec
