package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// initModel names the job that `monolith init` writes, with the model that it chooses.
const initModel = "init"

// models are init's job and all models that are made of settings alone, each with its defaults.
func models() []string {
	names := []string{initModel}
	for _, m := range components.All().Models {
		if m.Name != "graph" {
			names = append(names, m.Name)
		}
	}
	return names
}

// manyHeads are the models that are made for more than one head. They get two, of the same label.
var manyHeads = []string{"shared_bottom", "mmoe", "ple", "esmm", "snr", "dbmtl"}

// attending are the models that are made for histories.
var attending = []string{"din", "dien", "hstu"}

// mainHead is the head that is scored, where there are several.
const mainHead = "main"

// propose is the job that `monolith init` writes for the training files of a set below a folder.
func propose(ctx context.Context, folder string) (string, error) {
	p, err := job.Propose(ctx, filepath.Join(folder, "train", "*.tsv"), job.ProposeOptions{Label: "label"})
	if err != nil {
		return "", err
	}
	return p.Job, nil
}

// withModel is a job's text with another model, which has its default settings and what it cannot do without.
func withModel(text, model string, s dataSet) (string, error) {
	if model == initModel {
		return text, nil
	}
	root, err := parsed(text)
	if err != nil {
		return "", err
	}
	switch {
	case slices.Contains(manyHeads, model):
		features := child(root, "parse")
		label := child(features, "label")
		if label == nil {
			return "", errors.New("the job has no label")
		}
		remove(features, "label")
		put(root, "heads", fmt.Sprintf("[{name: %s, label: label}, {name: second, label: label}]", mainHead))
		if metric := child(child(child(root, "train"), "early_stop"), "metric"); metric != nil {
			metric.Value = mainHead + "." + metric.Value
		}
		put(root, "model", model)
	case model == "dssm" && s.item != "":
		put(root, "model", fmt.Sprintf("{dssm: {item: [%s]}}", s.item))
	default:
		put(root, "model", model)
	}
	if s.history != "" && slices.Contains(attending, model) {
		if err := attend(root, s); err != nil {
			return "", err
		}
	}
	return rendered(root)
}

// attend has the job's history attend from the item, whose vectors it shares.
func attend(root *yaml.Node, s dataSet) error {
	features := child(child(root, "parse"), "features")
	if features == nil {
		return errors.New("the job has no features")
	}
	named := func(name string) *yaml.Node {
		for _, f := range features.Content {
			if n := child(f, "name"); n != nil && n.Value == name {
				return f
			}
		}
		return nil
	}
	item, history := named(s.item), named(s.history)
	if item == nil || history == nil {
		return fmt.Errorf("the job has no feature %s or %s", s.item, s.history)
	}
	remove(history, "combiner")
	put(history, "slot", child(item, "slot").Value)
	put(history, "attends", s.item)
	return nil
}

// evaluating is a job's text whose held-out examples are those of a file.
func evaluating(text, file string) (string, error) {
	root, err := parsed(text)
	if err != nil {
		return "", err
	}
	put(root, "eval", fmt.Sprintf("{source: {text: {files: [%q]}}}", file))
	return rendered(root)
}

// trainingOnAll is a job's text that holds nothing out, so that nothing can end it early either.
func trainingOnAll(text string) (string, error) {
	root, err := parsed(text)
	if err != nil {
		return "", err
	}
	remove(root, "eval")
	if train := child(root, "train"); train != nil {
		remove(train, "early_stop")
		remove(train, "plateau")
	}
	return rendered(root)
}

// parsed is the mapping that a job file is.
func parsed(text string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the job is no mapping")
	}
	return doc.Content[0], nil
}

func rendered(root *yaml.Node) (string, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	err := e.Encode(root)
	return b.String(), errors.Join(err, e.Close())
}

// child is the value of a mapping's key; nil: there is none.
func child(m *yaml.Node, key string) *yaml.Node {
	if m == nil {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

// put sets a mapping's key to a value that is written in YAML.
func put(m *yaml.Node, key, value string) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(value), &doc); err != nil || len(doc.Content) != 1 {
		panic(fmt.Sprintf("%q is no YAML: %v", value, err)) // it is written in this package
	}
	remove(m, key)
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, doc.Content[0])
}

func remove(m *yaml.Node, key string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content = slices.Delete(m.Content, i, i+2)
			return
		}
	}
}

// run trains a model on a set's files below a folder, pass after pass, and scores each pass's snapshot on the
// validation file. Then it scores the snapshot that `monolith eval` and `monolith predict` would take.
func run(ctx context.Context, c cell, o options, s dataSet, folder, dir string) (r result, err error) {
	text, err := propose(ctx, folder)
	if err != nil {
		return r, err
	}
	if o.allRows {
		if text, err = trainingOnAll(text); err != nil {
			return r, err
		}
	}
	if text, err = withModel(text, c.model, s); err != nil {
		return r, err
	}
	scored, err := evaluating(text, filepath.Join(folder, "valid.tsv"))
	if err != nil {
		return r, err
	}
	decode := func(text string, pass int) (*job.Config, error) {
		set := []string{"dir=" + dir, fmt.Sprint("seed=", c.seed), fmt.Sprint("epochs=", pass), fmt.Sprint("train.workers=", c.workers)}
		if c.batch != ownBatch {
			set = append(set, fmt.Sprint("train.batch=", c.batch))
		}
		return job.Decode([]byte(text), c.model+".yaml", job.LoadOptions{Set: append(set, o.set...)})
	}
	evaluate := func(pass int, snapshot string) (score, error) {
		cfg, err := decode(scored, pass)
		if err != nil {
			return score{}, err
		}
		e, err := job.Evaluate(ctx, cfg, job.EvalOptions{Snapshot: snapshot})
		if err != nil {
			return score{}, err
		}
		of := func(metric string) float64 {
			if v, ok := e.Metrics[mainHead+"."+metric]; ok {
				return v
			}
			return e.Metrics[metric]
		}
		return score{auc: of("auc"), logLoss: of("log_loss")}, nil
	}
	var seen predictions
	for pass := 1; pass <= c.passes; pass++ {
		cfg, err := decode(text, pass)
		if err != nil {
			return r, err
		}
		opts := job.RunOptions{}
		if pass == 1 {
			opts.Observe = func(o trainstep.Observation) { seen.add(o.Scores.Heads[0].Predictions, o.Scores.Heads[0].Labels) }
		}
		trained, err := job.Run(ctx, cfg, opts)
		if err != nil {
			return r, err
		}
		if pass == 1 || trained.Examples > 0 {
			of, err := evaluate(pass, job.Newest)
			if err != nil {
				return r, err
			}
			r.passes = append(r.passes, of)
			r.rows += trained.Examples
		}
		if trained.EarlyStopped {
			break
		}
	}
	r.first, r.last, r.life = seen.scores()
	if cfg, err := decode(text, c.passes); err != nil || cfg.Train.EarlyStop == nil { // the newest is kept
		r.kept = r.passes[len(r.passes)-1]
		return r, err
	}
	r.kept, err = evaluate(c.passes, "")
	return r, err
}
