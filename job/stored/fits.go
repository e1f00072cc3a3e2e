package stored

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Fits reports whether a snapshot was trained on the job's features, and on nothing that the job holds out; moved are the changes that may be. l is the layout that the
// parameters are made to fit, so that one error has all that restore needs; nil: they are read as they are. Errors: [pipeline.ErrConfig].
func Fits(c *spec.Config, l *param.Layout, info *snapshot.Info) (moved []string, err error) {
	return fits(c, l, info, true, "", otherDir)
}

// Continues is Fits for training that continues where the snapshot was taken, with what it passed over: the holdout is the same.
func Continues(c *spec.Config, l *param.Layout, info *snapshot.Info) (moved []string, err error) {
	return fits(c, l, info, false, "", otherDir)
}

const otherDir = "give the job another dir, or --resume=false, to train from the start"

// fits is [Fits] or [Continues] of a snapshot that is named somewhere, with what else can be done than to set the job back.
func fits(c *spec.Config, l *param.Layout, info *snapshot.Info, narrower bool, named, otherwise string) (moved []string, err error) {
	stored, err := spec.DecodeRecipe(info.Recipe)
	if err != nil {
		return nil, fault.Config("job: snapshot %s%s: %w: %s", info.Path, named, err, otherwise)
	}
	stored = stored.Renamed(c.Restore.Rename, zoo.TableName)
	now := c.Recipe()
	was, is, features, heads := stored.Common(now)
	if narrower {
		was = was.Narrowed(is)
	}
	faults, moved := was.Differences(is, "was", "is")
	var sections []string
	policies := Policies(c)
	if names := stored.TableNames(now, zoo.TableName); len(names) > 0 {
		policies.Rename = maps.Clone(policies.Rename)
		if policies.Rename == nil {
			policies.Rename = map[string]string{}
		}
		var set []string
		for _, old := range slices.Sorted(maps.Keys(names)) {
			policies.Rename[old] = names[old]
			set = append(set, old+": "+names[old])
		}
		sections = append(sections, "rename: {"+strings.Join(set, ", ")+"}")
	}
	for _, of := range []struct {
		what     string
		changed  spec.Changed
		policies spec.Presence
	}{{"feature", features, c.Restore.Features}, {"head", heads, c.Restore.Heads}} {
		var set []string
		may := func(names []string, text, policy string) {
			for _, name := range names {
				if got := of.policies.Of(name); got != policy {
					faults = append(faults, fmt.Sprintf("%s %s: %s", of.what, name, text))
					set = append(set, name+": "+policy)
				}
			}
		}
		may(of.changed.Gone, "was there, is not", spec.PolicyDrop)
		may(of.changed.Added, "was not there, is now", spec.PolicyInit)
		if len(set) > 0 {
			sections = append(sections, of.what+"s: {"+strings.Join(set, ", ")+"}")
		}
	}
	if len(faults) == 0 {
		return moved, nil // what the parameters lack is found where they are loaded
	}
	grow := ""
	if l != nil && len(sections) > 0 { // else nothing that can be set here is of use
		_, err := l.Fit(info.Shape(), policies)
		if unfit, ok := errors.AsType[*param.FitError](err); ok {
			faults = append(faults, unfit.Faults...)
			sections = append(sections, unfit.Sections()...)
			if unfit.Shapes {
				grow = param.GrowHint
			}
		}
	}
	hint := ""
	if len(sections) > 0 {
		hint = "to continue with others, set restore: {" + strings.Join(sections, ", ") + "}" + grow + "; otherwise "
	}
	return moved, fault.Config("job: snapshot %s%s was trained on other features, labels, heads or examples than the job's (its parameters would be used for what they were not trained on, or what is held out was trained on):\n  %s\n"+
		"%sset these to what they were; or %s", info.Path, named, strings.Join(faults, "\n  "), hint, otherwise)
}

// Beginning is the snapshot of another run that a run begins with, and what is wrong with newer ones; empty where the job names none, or has a snapshot of its
// own. read: all of it is read, so that training does not begin with a damaged one; otherwise its manifest and the sizes of its files count. Errors:
// [pipeline.ErrConfig] where it has other features.
func Beginning(ctx context.Context, c *spec.Config, l *param.Layout, read bool) (path string, damaged []error, err error) {
	if c.Restore.From == "" {
		return "", nil, nil
	}
	if own, err := snapshot.List(SnapshotsIn(c)); err != nil || len(own) > 0 {
		return "", nil, err
	}
	entries, err := FindSnapshots(c.Restore.From)
	if err != nil {
		return "", nil, fmt.Errorf("restore.from: %w", err)
	}
	f := Local(entries)
	var info *snapshot.Info
	if read {
		info, damaged, err = f.Good(ctx)
	} else {
		info, damaged, err = f.Use(nil)
	}
	if err != nil {
		return "", nil, fmt.Errorf("job: restore.from: %w", err)
	}
	_, err = fits(c, l, info, true, ", which restore.from names,", "name another snapshot in restore.from, or leave it out, to train from the start")
	return info.Path, damaged, err
}

// Policies say what becomes of parameters that do not fit.
func Policies(c *spec.Config) param.Policies {
	of := func(p spec.Policies) map[string]param.Policy {
		out := make(map[string]param.Policy, len(p))
		for name, word := range p {
			out[name] = param.Policy(word)
		}
		return out
	}
	return param.Policies{Rename: c.Restore.Rename, Tables: of(c.Restore.Tables), Tensors: of(c.Restore.Tensors)}
}

// FitsNewest compares the job with the newest good snapshot of its dir, if there is one.
func FitsNewest(c *spec.Config, l *param.Layout, notice func(string, ...any)) error {
	entries, err := snapshot.List(SnapshotsIn(c))
	if err != nil {
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	i := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Err == nil }) // a damaged one is passed over where it is read
	if i < 0 {
		return nil
	}
	moved, err := Continues(c, l, entries[i].Info)
	if err == nil && len(moved) > 0 {
		notice("other columns are read than for snapshot %s: %s", entries[i].Path, strings.Join(moved, "; "))
	}
	return err
}
