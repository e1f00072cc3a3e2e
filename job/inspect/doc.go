// Package inspect looks at jobs, sources and snapshots without changing anything.
package inspect
