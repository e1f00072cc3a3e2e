package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/job"
)

// inspectSlots describes the slots of a snapshot.
func (a *App) inspectSlots(ctx context.Context, path string, out *outcome) error {
	if a.Ops.InspectSlots == nil {
		return errMissing
	}
	progress := a.rowProgress()
	defer a.screen.SetLine("")
	info, err := a.Ops.InspectSlots(ctx, path, job.SlotOptions{Progress: progress})
	if err != nil {
		return err
	}
	out.result = info
	out.text = func(w io.Writer) error { return writeSlots(w, info) }
	return nil
}

// rowProgress shows how far rows are read.
func (a *App) rowProgress() func(read, total int64) {
	show := a.progress("inspect")
	if show == nil {
		return nil
	}
	return func(read, total int64) {
		show(func() (string, []slog.Attr) {
			return fmt.Sprintf("reading %s of %s rows, %.0f%%", ui.Count(read), ui.Count(total), math.Floor(100*float64(read)/float64(max(1, total)))),
				[]slog.Attr{slog.Int64("rows", read), slog.Int64("total", total)}
		})
	}
}

// progress returns what shows how far a phase is, as [ui.StatusLine] does for examples: on a terminal in a line that is redrawn ten times a second at most, elsewhere
// as a log line every [ui.LogEvery]; nil under --json and --quiet. How far it is, in words and as attributes, is asked for when it is shown.
func (a *App) progress(phase string) func(how func() (string, []slog.Attr)) {
	if a.json || a.quiet {
		return nil
	}
	every, next := ui.LogEvery, time.Now().Add(ui.LogEvery)
	if a.screen.Terminal {
		every, next = time.Second/10, time.Now()
	}
	return func(how func() (string, []slog.Attr)) {
		at := time.Now()
		if at.Before(next) {
			return
		}
		next = at.Add(every)
		line, attrs := how()
		if a.screen.Terminal {
			a.screen.SetLine(line)
			return
		}
		a.logger.Load().LogAttrs(context.Background(), slog.LevelInfo, "progress", append([]slog.Attr{slog.String("phase", phase)}, attrs...)...)
	}
}

func writeSlots(w io.Writer, s *job.SnapshotSlots) error {
	head := [][]string{
		{"snapshot", whichSnapshot(s.Path, s.Which)},
		{"created", s.Created.UTC().Format(time.RFC3339)},
		{"rows", ui.Count(s.Rows)},
	}
	if s.Newest != nil {
		head = append(head, []string{"newest time", s.Newest.UTC().Format(time.RFC3339)})
	}
	for _, d := range s.Damaged {
		head = append(head, []string{"damaged", d})
	}
	if err := pairs(w, head...); err != nil {
		return err
	}
	return writeSlotTable(w, s.Slots, s.Newest != nil)
}

// writeSlotTable writes a line for each slot, and what is to be known of their times.
func writeSlotTable(w io.Writer, slots []job.SlotInfo, times bool) error {
	if len(slots) == 0 {
		_, err := fmt.Fprintln(w, "\nno rows: nothing was trained yet")
		return err
	}
	waits := false
	for _, slot := range slots {
		waits = waits || slot.Waiting > 0
	}
	rows := [][]string{{"TABLE", "SLOT", "FEATURE", "ROWS", "SHARE", "MEMORY", "OCCURRENCES", "ONCE", "MEAN NORM", "AGE P50", "AGE P90", "AGE MAX"}}
	if waits {
		rows[0] = append(rows[0], "WAITING")
	}
	var notes []string
	for _, slot := range slots {
		p50, p90, most := "-", "-", "-"
		if g := slot.Ages; g != nil {
			p50, p90, most = age(g.P50), age(g.P90), age(g.Max)
		}
		norm := "-"
		if slot.Rows > 0 {
			norm = strconv.FormatFloat(slot.MeanNorm, 'g', 4, 64)
		}
		line := []string{
			slot.Table, strconv.Itoa(slot.Slot), clip(cmp.Or(strings.Join(slot.Features, ", "), "-"), 40), ui.Count(slot.Rows), percent(slot.Rows, slot.Share),
			ui.Bytes(slot.Bytes), occurrences(slot.Occurrences), peek.Share(slot.Once, slot.Rows), norm, p50, p90, most,
		}
		if waits {
			line = append(line, ui.Count(slot.Waiting))
		}
		rows = append(rows, line)
		if slot.Timeless > 0 && slot.Timeless < slot.Rows {
			notes = append(notes, fmt.Sprintf("table %s, slot %d: %s no event time, and no part in the ages", slot.Table, slot.Slot, have(slot.Timeless)))
		}
	}
	if !times {
		notes = append(notes, "no row has an event time: ages are not known, and nothing expires")
	}
	if err := block(w, rows, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12); err != nil {
		return err
	}
	for i, note := range notes {
		if i == 0 {
			note = "\n" + note
		}
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	return nil
}

// occurrences writes a sum that may be larger than an int64.
func occurrences(n uint64) string {
	if n > math.MaxInt64 {
		return ui.Short(float64(n))
	}
	return ui.Count(int64(n))
}

func have(rows int64) string {
	if rows == 1 {
		return "1 row has"
	}
	return ui.Count(rows) + " rows have"
}

// age writes seconds in the unit that people would take.
func age(seconds float64) string {
	short := func(x float64, unit string) string { return strconv.FormatFloat(x, 'g', 3, 64) + unit }
	switch {
	case seconds == 0:
		return "0s"
	case seconds < 99.95:
		return short(seconds, "s")
	case seconds < 100*60:
		return short(seconds/60, "m")
	case seconds < 100*3600:
		return short(seconds/3600, "h")
	}
	return ui.Count(int64(math.Round(seconds/86400))) + "d"
}
