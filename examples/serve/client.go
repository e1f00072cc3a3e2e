package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// model is what requests call the model: the folder of its exports.
const model = "shop"

// client asks a server for predictions, over HTTP as TensorFlow Serving is asked. It needs Go's standard library alone; client.py is the same in Python.
type client struct{ server string } // a URL

// instance is an example: the values of features by their names, as the records that the model was trained on have them.
type instance map[string]any

// predict returns a prediction for each instance.
func (c client) predict(ctx context.Context, instances ...instance) ([]float64, error) {
	question, err := json.Marshal(map[string]any{"instances": instances})
	if err != nil {
		return nil, err
	}
	var answer struct{ Predictions [][]float64 }
	if err := c.call(ctx, http.MethodPost, ":predict", question, &answer); err != nil {
		return nil, err
	}
	if len(answer.Predictions) != len(instances) {
		return nil, fmt.Errorf("%d predictions of %d instances", len(answer.Predictions), len(instances))
	}
	out := make([]float64, len(instances))
	for i, p := range answer.Predictions {
		if len(p) != 1 {
			return nil, fmt.Errorf("prediction %d is %v, not one number", i, p)
		}
		out[i] = p[0]
	}
	return out, nil
}

// version is that of the newest export that is served.
func (c client) version(ctx context.Context) (string, error) {
	var answer struct {
		Versions []struct{ Version, State string } `json:"model_version_status"`
	}
	if err := c.call(ctx, http.MethodGet, "", nil, &answer); err != nil {
		return "", err
	}
	for _, v := range answer.Versions {
		if v.State == "AVAILABLE" {
			return v.Version, nil
		}
	}
	return "", errors.New("no version is served")
}

// call asks, and reads the answer; what the server refuses it explains.
func (c client) call(ctx context.Context, method, what string, question []byte, answer any) (err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.server+"/v1/models/"+model+what, bytes.NewReader(question))
	if err != nil {
		return err
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, got.Body.Close()) }()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		return err
	}
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", r.URL, got.Status, body)
	}
	return json.Unmarshal(body, answer)
}

// ask is the command ask: it predicts one instance.
func ask(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("serve ask", flag.ExitOnError)
	server := flags.String("server", "http://127.0.0.1:8501", "`URL` of the server")
	_ = flags.Parse(args) // it exits
	of := instance{}
	for _, arg := range flags.Args() {
		name, text, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE, such as user=7", arg)
		}
		var value any = text
		if n := json.Number(text); json.Valid([]byte(text)) && n.String() == text {
			value = n
		}
		of[name] = value
	}
	answers, err := client{*server}.predict(ctx, of)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, answers[0])
	return err
}
