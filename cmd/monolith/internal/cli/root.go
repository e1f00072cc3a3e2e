package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job"
)

// Command returns the whole command tree, for reference pages.
func Command() *cobra.Command {
	a := &App{Stdout: io.Discard, Stderr: io.Discard}
	a.screen = ui.NewScreen(io.Discard, true, a.getenv)
	return a.root(&outcome{})
}

func (a *App) root(out *outcome) *cobra.Command {
	root := &cobra.Command{
		Use:   "monolith COMMAND",
		Short: "Train recommendation models on streams",
		Long: `Monolith trains recommendation models whose parameters are mostly embeddings while the data streams in.

A job is one YAML file: where examples come from, what they look like, the model, how it is trained. Training goes
on from the newest snapshot in the job's dir, and every example counts exactly once, whatever was killed in between.`,
		Example: `  monolith demo                      # see it work; needs nothing installed
  monolith check job.yaml            # is the job all right?
  monolith train job.yaml            # train, or continue training
  monolith eval job.yaml             # how good is it?`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noOtherCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			out.command = cmd.Name()
			if a.noColor {
				a.screen.Color = false
			}
			a.setLogger(&job.Log{Level: "info", Format: "text"})
			if a.Ops.Begin != nil {
				if err := a.Ops.Begin(); err != nil {
					return &usageError{message: err.Error()}
				}
			}
			return nil
		},
	}
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.BoolVar(&a.json, "json", a.json, "write one JSON object: command, ok, result, error")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "write the result and errors only")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log at level debug")
	flags.BoolVar(&a.noColor, "no-color", false, "write without colours, as NO_COLOR=1 does")
	root.AddGroup(&cobra.Group{ID: "job", Title: "Commands for jobs:"}, &cobra.Group{ID: "more", Title: "More commands:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("job", a.trainCommand(out), a.backfillCommand(out), a.psCommand(out), a.poolCommand(out), a.evalCommand(out), a.predictCommand(out), a.tuneCommand(out), a.checkCommand(out), a.planCommand(out))
	add("more", a.demoCommand(out), a.inspectCommand(out), a.exportModelCommand(out), a.serveCommand(out), a.snapshotCommand(out), a.modelCommand(out), a.initCommand(out), a.benchCommand(out), a.versionCommand(out))
	root.SetHelpCommand(&cobra.Command{
		Use: "help [command]", Short: "Help about any command", GroupID: "more",
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := helpPage(cmd.Root(), args)
			if err != nil {
				return err
			}
			page.InitDefaultHelpFlag()
			return page.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
			page, err := helpPage(cmd.Root(), args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, c := range page.Commands() {
				if strings.HasPrefix(c.Name(), begun) && (c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()) {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	})
	root.SetCompletionCommandGroupID("more")
	root.AddCommand(topics()...)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's: a shell that it does not know is an error, as with all commands
			c.Args, c.RunE = noOtherCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Example = `  monolith completion bash > /etc/bash_completion.d/monolith`
		}
	}
	a.setHelp(root)
	return root
}

// flagError turns a flag that does not exist into a usage error with the nearest one that does, and says how to write a duration without a unit.
func flagError(cmd *cobra.Command, err error) error {
	e := &usageError{message: err.Error()}
	if _, value, ok := strings.Cut(err.Error(), "missing unit in duration "); ok {
		value = strings.Trim(value, `"`)
		e.message += fmt.Sprintf("; write %ss, %[1]sm or %[1]sms", value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		var names []string
		collect := func(f *pflag.Flag) { names = append(names, f.Name) }
		cmd.Flags().VisitAll(collect)
		cmd.InheritedFlags().VisitAll(collect)
		near := alias(name, names)
		if near == "" {
			near = nearest.Name(name, names)
		}
		if near != "" {
			e.suggestion = "--" + near
		}
		if flag := cmd.Flags().Lookup("set"); flag != nil {
			if key := keyFor(name); key != "" && alias(name, names) == "" {
				e.message += fmt.Sprintf("; a key of the job is set by --set %s=...", key)
				e.suggestion = ""
			}
		}
	}
	return e
}

// alias returns the flag among names that other programs call flag; "" if there is none.
func alias(flag string, names []string) string {
	for _, of := range [...]struct {
		name  string
		other []string
	}{
		{"http", []string{"rest", "rest-api-port", "rest-port", "http-port", "port", "host", "listen", "bind", "addr", "address"}},
		{"grpc", []string{"grpc-port", "grpc-address", "rpc"}},
		{"model-config", []string{"config", "config-file", "model-config-file"}},
		{"max-bytes", []string{"max-message-size"}},
		{"tls-cert", []string{"cert", "ssl-cert"}},
		{"tls-key", []string{"key", "ssl-key"}},
		{"to", []string{"out", "output", "output-dir", "dest"}},
		{"dir", []string{"out", "output", "output-dir"}},
		{"number", []string{"limit", "top", "top-k"}},
	} {
		if slices.Contains(of.other, strings.ReplaceAll(flag, "_", "-")) && slices.Contains(names, of.name) {
			return of.name
		}
	}
	return ""
}

// keyFor is the key of a job that a flag was meant for: the key itself, its last name, or one that differs from a first name by an ending. Empty: there is none.
func keyFor(flag string) string {
	flag = strings.ReplaceAll(flag, "-", "_")
	var last []string
	for _, k := range job.Keys() {
		top := !strings.Contains(k.Path, ".")
		switch {
		case k.Type == "section":
		case k.Path == flag, top && k.Path == flag+"s":
			return k.Path
		case strings.HasSuffix(k.Path, "."+flag) && strings.Count(k.Path, ".") == 1:
			last = append(last, k.Path)
		}
	}
	if len(last) == 1 {
		return last[0]
	}
	return ""
}

// helpPage finds a command, or a topic, by the words that name it.
func helpPage(page *cobra.Command, words []string) (*cobra.Command, error) {
	for _, word := range words {
		if !page.HasSubCommands() {
			break // it takes arguments
		}
		at := slices.IndexFunc(page.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
		if at < 0 {
			return nil, unknownCommand(page, word)
		}
		page = page.Commands()[at]
	}
	return page, nil
}

// noOtherCommand refuses what is no command of a group, and names the one that was probably meant, of this group or another: see [unknownCommand].
func noOtherCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}

// unknownCommand is the error for what is no command of a group. What is exactly the name of a command elsewhere, or what other programs call one, is taken for that before what is nearly
// the name of one of the group.
func unknownCommand(group *cobra.Command, name string) *usageError {
	var own, all []*cobra.Command
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			own = append(own, c)
		}
	}
	var collect func(at *cobra.Command)
	collect = func(at *cobra.Command) {
		for _, c := range at.Commands() {
			if c.IsAvailableCommand() {
				all = append(all, c)
				if c.Name() != "bench" { // whose commands are called as what they measure
					collect(c)
				}
			}
		}
	}
	collect(group.Root())
	e := &usageError{message: fmt.Sprintf("unknown command %q", name)}
	called := func(c *cobra.Command) bool { return c.Name() == name || slices.Contains(c.SuggestFor, name) }
	var names []string
	for _, c := range slices.Concat(own, all) { // of equally near ones the group's own
		names = append(names, c.Name())
	}
	meant := nearest.Name(name, names)
	near := func(c *cobra.Command) bool { return meant != "" && c.Name() == meant }
	for _, try := range []struct {
		among []*cobra.Command
		is    func(c *cobra.Command) bool
	}{{own, called}, {all, called}, {own, near}, {all, near}} {
		var found []string
		for _, c := range try.among {
			if try.is(c) {
				found = append(found, nameFrom(group, c))
			}
		}
		if len(found) > 0 {
			e.suggestion = strings.Join(found, " or ")
			break
		}
	}
	return e
}

// nameFrom is how a command is called where group was: by its name alone in the same group, and otherwise with those before it.
func nameFrom(group, c *cobra.Command) string {
	if c.Parent() == group {
		return c.Name()
	}
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// exactly wants n arguments and names what is missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return &usageError{message: fmt.Sprintf("%s needs %s: %s", cmd.Name(), names[len(args)], usageOf(cmd))}
		case len(args) > len(names):
			return &usageError{message: fmt.Sprintf("%s does not know what to do with %q: %s", cmd.Name(), args[len(names)], usageOf(cmd))}
		}
		return nil
	}
}

// usageOf is how a command is called, those before it included.
func usageOf(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Use
	}
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

// orCommand is args for a command that has commands of its own: what is no job file, and nearly the name of one of those, is taken for a mistake in that.
func orCommand(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) > 0 && !isJobFile(given[0]) {
			if _, err := os.Stat(given[0]); err != nil {
				if e := unknownCommand(cmd, given[0]); e.suggestion != "" {
					return e
				}
			}
		}
		return args(cmd, given)
	}
}

// completeJob offers YAML files.
func completeJob(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// fromFlag returns overrides of the job that a flag other than --set stands for. Errors about them
// name this flag, with its dashes.
func (a *App) fromFlag(flag string, overrides ...string) []string {
	if a.typed == nil {
		a.typed = map[string]string{}
	}
	for _, o := range overrides {
		a.typed[o] = flag
	}
	return overrides
}

// addRunner adds the flag that names the runner; onRunner is what of it goes to the job.
func addRunner(cmd *cobra.Command, runner *string) {
	cmd.Flags().StringVar(runner, "runner", "", "`runner` of the graph, as --set runner=: local, or one of Apache Beam's: prism, flink, portable, dataflow")
}

func (a *App) onRunner(set []string, runner string) []string {
	if runner == "" {
		return set
	}
	return append(slices.Clone(set), a.fromFlag("--runner", "runner="+runner)...)
}

// asksShortly is how long commands that ask running shards wait for them if nobody says otherwise: longer than a shard with a log, or one whose standby takes over, is away.
const asksShortly = 5 * time.Second

// addWait adds the flag of commands that ask running shards.
func addWait(cmd *cobra.Command, wait *time.Duration) {
	cmd.Flags().DurationVar(wait, "wait", asksShortly, "how `long` to wait for shards that do not answer or are not ready, as while they are being started")
}

// asking is how running shards are asked by a command with the flag of addWait.
func (a *App) asking(wait time.Duration) (job.Asking, error) {
	switch {
	case wait < 0:
		return job.Asking{}, &usageError{message: fmt.Sprintf("--wait is %v, must be at least 0", wait)}
	case wait == 0:
		wait = -1 // one attempt
	}
	return job.Asking{Wait: wait, Logger: a.logger.Load()}, nil
}

// addSet adds --set to a command that reads a job.
func addSet(cmd *cobra.Command, set *[]string) {
	cmd.Flags().StringArrayVar(set, "set", nil, "override `key.path=value` of the job; may be given more than once")
	_ = cmd.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var keys []string
		for _, k := range job.Keys() {
			if k.Env != "" {
				keys = append(keys, k.Path+"=")
			}
		}
		return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}

// errSet refuses --set where what it would override is no job file; nil: there is none.
func errSet(target string, set []string) error {
	if len(set) == 0 || isJobFile(target) {
		return nil
	}
	return &usageError{message: fmt.Sprintf("--set %s overrides what a job file says, and %s is none", set[0], target)}
}

// stdinJob is the job file that stands for standard input.
const stdinJob = "-"

// load reads a job with all its layers, sets the logger it asks for and says what is odd about it.
func (a *App) load(path string, set []string) (*job.Config, error) {
	return a.warn(a.read(path, job.LoadOptions{Set: set}))
}

// loadUntrained is load of a job whose model is not trained.
func (a *App) loadUntrained(path string, set []string) (*job.Config, error) {
	return a.warn(a.read(path, job.LoadOptions{Set: set, Untrained: true}))
}

// warn says what is odd about a job that was read.
func (a *App) warn(cfg *job.Config, err error) (*job.Config, error) {
	if err != nil {
		return nil, err
	}
	for _, w := range cfg.Warnings() {
		a.logger.Load().Warn("the job may not mean what it says", "note", w)
	}
	return cfg, nil
}

// read is load without a word on what is odd.
func (a *App) read(path string, opts job.LoadOptions) (*job.Config, error) {
	opts.Env, opts.Flags = a.Env, a.typed
	if path != stdinJob && !isJobFile(path) && !isDir(path) {
		if _, err := job.ForTarget(path, job.LoadOptions{}); err == nil && !looksLikeJob(path) {
			return nil, &usageError{message: fmt.Sprintf("%s is data, not a job file; `monolith init %s` writes a job for it", path, path)}
		}
	}
	var cfg *job.Config
	var err error
	if path == stdinJob {
		if a.piped == nil { // a command may ask for its job more than once
			data, err := io.ReadAll(a.Stdin) // not nil, also where nothing came
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			a.piped = data
		}
		cfg, err = job.Decode(a.piped, "stdin", opts)
	} else {
		cfg, err = job.Load(path, opts)
	}
	if err != nil {
		return nil, err
	}
	a.setLogger(&cfg.Log)
	return cfg, nil
}

// isJobFile recognises a job file by its name; - is standard input.
func isJobFile(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".yaml" || ext == ".yml" || path == stdinJob
}

// looksLikeJob reports whether a file has the first key of every job, whatever it is called.
func looksLikeJob(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read from
	head, _ := io.ReadAll(io.LimitReader(f, 64<<10))
	return versionKey.Match(head)
}

var versionKey = regexp.MustCompile(`(?m)^version:`)

// isThere is an error for a path that may be one of a job file, a snapshot or an export, and is not there.
func isThere(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text := path + ": no such job file, snapshot or export"
	dir, base := filepath.Split(filepath.Clean(path))
	if entries, err := os.ReadDir(cmp.Or(dir, ".")); err == nil {
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if near := nearest.Name(base, names); near != "" {
			text += fmt.Sprintf("; did you mean %q?", dir+near)
		}
	}
	return &usageError{message: text}
}

// isDir reports whether path is a folder that is there.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
