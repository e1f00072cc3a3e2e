// Package arrowx holds what Monolith needs of Arrow beyond what arrow-go offers: choosing rows ([Take]), joining record
// batches ([Concat]), estimating memory ([Size]) and collecting undecoded records ([Payloads]). It knows nothing of the
// pipeline. All functions leave their arguments alone and may be called from several goroutines at once.
package arrowx
