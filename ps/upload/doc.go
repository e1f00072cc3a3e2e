// Package upload keeps copies of finished snapshots in a store that outlives the machine, and brings them back:
//
//	URL/owner                 the id of the job's dir that uploads there
//	URL/snap-00000012/...     a snapshot as in the job's folder, see package snapshot
//
// A store is an [fsx.FS], of which it needs nothing but whole files. The manifest comes last, a base before what adds to it; a
// reader finds a snapshot whole or not at all.
package upload
