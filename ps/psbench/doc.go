// Package psbench measures the parameter server beside plain programs that move the same bytes, for `monolith bench`.
package psbench
