package fid

// CityHash64 is the full 64-bit hash, which outside tools can check.
var CityHash64 = cityHash64
