// Package stored knows what a job keeps in its dir: snapshots and which of them is meant, logs, locks, the job's identity, and
// what a run must not forget beside rows and positions.
package stored
