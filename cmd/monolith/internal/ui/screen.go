// Package ui writes for people: a progress line that log lines do not tear apart, tables, numbers.
package ui

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// Screen is standard error with, on a terminal, one line at the bottom that is redrawn. Everything else that goes to
// standard error goes through Write, which moves the line down. Its methods may be called from several goroutines.
type Screen struct {
	// Terminal reports whether cursor movements are understood; Color that colours are wanted too.
	Terminal, Color bool

	mu   sync.Mutex
	w    io.Writer
	line string
}

const clearLine = "\r\x1b[K"

// NewScreen writes to w. It is a terminal when w is one and TERM is not dumb; colours are on unless noColor or NO_COLOR
// (no-color.org) say otherwise. env looks variables up.
func NewScreen(w io.Writer, noColor bool, env func(string) string) *Screen {
	s := &Screen{w: w}
	s.Terminal = IsTerminal(w) && env("TERM") != "dumb"
	s.Color = s.Terminal && !noColor && env("NO_COLOR") == ""
	return s
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Write writes whole lines above the progress line.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(p)
	}
	if _, err := io.WriteString(s.w, clearLine); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	if err == nil {
		_, err = io.WriteString(s.w, s.line)
	}
	return n, err
}

// SetLine replaces the progress line; empty removes it. Off a terminal it does nothing.
func (s *Screen) SetLine(line string) {
	if !s.Terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == s.line {
		return
	}
	s.line = fit(line, Width(s.w))
	// A terminal that has gone away must not stop the run.
	_, _ = io.WriteString(s.w, clearLine+s.line)
}

// Width is how many columns a terminal has; 80 for what is none.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 80
}

// fit cuts a line that would wrap, since a wrapped line cannot be redrawn.
func fit(line string, width int) string {
	if r := []rune(line); len(r) >= width && width > 1 {
		return string(r[:width-1])
	}
	return line
}

// Paint puts text between escape codes when colours are on: "bold", "red", "green", "yellow".
func (s *Screen) Paint(style, text string) string {
	if !s.Color {
		return text
	}
	return paint(style, text)
}

func paint(style, text string) string {
	code := map[string]string{"bold": "1", "red": "31", "green": "32", "yellow": "33"}[style]
	if code == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
