// Package hook finds the hooks that implement the interface of an event.
package hook

// Of returns those of some hooks that implement T, in their order.
func Of[T any](hooks []any) (out []T) {
	for _, h := range hooks {
		if t, ok := h.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
