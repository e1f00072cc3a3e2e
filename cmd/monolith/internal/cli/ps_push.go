package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job"
)

func (a *App) psPushCommand(out *outcome) *cobra.Command {
	var (
		set []string
		o   job.PushOptions
		tls secure.TLS
	)
	cmd := &cobra.Command{
		Use:   "push JOB.yaml --to ADDRESS --model NAME",
		Short: "Push rows of running shards to a server of predictions",
		Long: `Give a server of the job's exports (monolith serve --accept-pushes) the weights of rows that have changed since it was given them last, while training continues. An id whose row has gone gets
what training would begin a row with. The first time all rows are pushed. So rows are served minutes or seconds old, and dense weights as of the newest export.

Rows are pushed as the parameter servers of bytedance/monolith push them: in requests of at most 4 MiB to PredictionService, of the signature hashtable_assign with the inputs TABLE_id and TABLE_value, or
with --raw of NAME/raw_assign with id, id_split and flat_value. So a SavedModel of bytedance/monolith takes them too; --name says what it calls a table.

The shards keep what the server has not got (monolith ps changes). It is acknowledged when the server has answered; whatever dies, rows are pushed again as they are then. Each server has a command of its own. A server of
monolith serve that was started again is given all rows again. Dense parameters are not among them. It needs the right to read (ps.allow).`,
		Example: `  monolith ps push job.yaml --to 127.0.0.1:8500 --model click --follow
  monolith ps push job.yaml --to serving:8500 --model click --follow \
    --every 1s --tls-ca ca.pem --token-file push-token
  monolith ps push job.yaml --to tfs:8500 --model ps_0 \
    --raw MonolithMultiHashTable_fused --name item=slot_2`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps push"
			switch {
			case a.Ops.PS.Push == nil:
				return errMissing
			case o.To == "" || o.Model == "":
				return &usageError{message: "to whom? --to HOST:PORT of gRPC, and --model NAME as the server calls it"}
			case o.Every <= 0, o.Timeout <= 0:
				return &usageError{message: fmt.Sprintf("--every is %v and --timeout %v, must be above 0", o.Every, o.Timeout)}
			}
			if tls != (secure.TLS{}) {
				o.TLS = &tls
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			o.Logger = a.logger.Load()
			pushed, err := a.Ops.PS.Push(cmd.Context(), cfg, o)
			if pushed != nil {
				out.result = pushed
				out.text = func(w io.Writer) error {
					return pairs(w, []string{"model", pushed.Model + " at " + pushed.To}, []string{"signature", pushed.Signature}, []string{"rows", ui.Count(pushed.Rows)},
						[]string{"ids without a row", ui.Count(pushed.Removed)}, []string{"requests", ui.Count(pushed.Requests)})
				}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.To, "to", "", "`address` of the server, for gRPC")
	flags.StringVar(&o.Model, "model", "", "`name` that the server has for the model")
	flags.BoolVar(&o.Follow, "follow", false, "continue with what changes from now on, until a signal")
	flags.DurationVar(&o.Every, "every", 10*time.Second, "ask again after this `time` where nothing has changed, and where somebody does not answer")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "how `long` a call to the server may take")
	flags.StringVar(&o.Raw, "raw", "", "`name` of the table that has all others: push by NAME/raw_assign")
	flags.StringToStringVar(&o.Tables, "name", nil, "`TABLE=NAME`: what the server calls a table; may be repeated (default: as the job)")
	flags.StringVar(&o.Consumer, "consumer", "", "`name` under which the shards keep what the server has not got (default: one of address and model)")
	flags.StringVar(&tls.CA, "tls-ca", "", "PEM `file` of who certifies the server")
	flags.StringVar(&tls.Cert, "tls-cert", "", "PEM `file` of the certificate that the server is shown")
	flags.StringVar(&tls.Key, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&tls.ServerName, "tls-server-name", "", "`name` that the server's certificate has (default the host of the address)")
	flags.StringVar(&o.TokenFile, "token-file", "", "`file` of the token that the server wants")
	addSet(cmd, &set)
	return cmd
}
