package savedmodel

import (
	"fmt"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/protofield"
)

// variable is a resource variable: its handle, its value, and what fills it.
type variable struct {
	name, handle, read string
	dtype              int64
	shape              []int64
	assign             string
}

// embedding is what an embedding table has: the hash table from ids to rows, and two variables.
type embedding struct {
	handle    string
	count     int64
	ids, rows variable
}

// all lists the variables in the order in which they are restored.
func (p *program) all() []*variable {
	var out []*variable
	for i := range p.dense {
		out = append(out, &p.dense[i])
	}
	for i := range p.tables {
		out = append(out, &p.tables[i].ids, &p.tables[i].rows)
	}
	return out
}

// declare adds the variables and hash tables of a model.
func (p *program) declare(m *export.Model) {
	for _, t := range p.layout.Dense {
		v := p.variable("dense/"+t.Name, dtFloat)
		for _, d := range t.Shape {
			v.shape = append(v.shape, int64(d))
		}
		p.dense = append(p.dense, v)
	}
	for i, t := range p.layout.Tables {
		n := m.Tables[i].Rows
		own := embedding{count: n, ids: p.variable("tables/"+t.Name+"/ids", dtInt64, n), rows: p.variable("tables/"+t.Name+"/rows", dtFloat, n+1, int64(t.Dim()))}
		p.tables = append(p.tables, own)
	}
	for _, v := range p.all() {
		v.handle = v.name
		p.nodes = append(p.nodes, node{v.name, "VarHandleOp", nil, []attr{typed("dtype", v.dtype), shaped("shape", v.shape), text("shared_name", v.name)}})
		v.read = p.add(v.name+"/Read", "ReadVariableOp", []string{v.handle}, typed("dtype", v.dtype))
	}
	for i := range p.tables {
		t := &p.tables[i]
		if t.count == 0 { // a hash table cannot be filled with nothing, and nobody asks it
			continue
		}
		name := fmt.Sprintf("tables/%s/numbers", p.layout.Tables[i].Name)
		t.handle = p.add(name, "HashTableV2", nil, typed("key_dtype", dtInt64), typed("value_dtype", dtInt64), text("shared_name", name))
	}
}

// variable names a variable; names that TensorFlow does not take are made such that it does, and stay distinct.
func (p *program) variable(name string, dtype int64, shape ...int64) variable {
	return variable{name: p.unique(name), dtype: dtype, shape: shape}
}

const (
	saverFile    = "save/Const"
	saverRestore = "save/restore_all"
	saverSave    = "save/control_dependency"
	initOp       = "init_all_tables"
)

// saver adds the operators that restore all variables of the files, those that write them again, and those that fill the hash tables.
func (p *program) saver() {
	p.prefix, p.scope = "save/", ""
	all := p.all()
	names, none, dtypes := make([]string, len(all)), make([]string, len(all)), make([]int64, len(all))
	for i, v := range all {
		names[i], dtypes[i] = v.name, v.dtype
	}
	n := []int64{int64(len(all))}
	var content protofield.Message
	content.Bytes(8, tensorOf(dtString, nil, nil, []string{"model"}))
	file := p.add(saverFile, "Const", nil, typed("dtype", dtString), attr{"value", content})
	keys, slices := p.constant(dtString, n, nil, names...), p.constant(dtString, n, nil, none...)
	restored := p.apply("RestoreV2", []string{file, keys, slices}, types("dtypes", dtypes))
	saved := []string{file, keys, slices}
	var assigned []string
	for i, v := range all {
		v.assign = p.apply("AssignVariableOp", []string{v.handle, output(restored, i)}, typed("dtype", v.dtype))
		assigned, saved = append(assigned, "^"+v.assign), append(saved, v.read)
	}
	p.add(saverRestore, "NoOp", assigned)
	done := p.apply("SaveV2", saved, types("dtypes", dtypes))
	p.add(saverSave, "Identity", []string{file, "^" + done}, typed("T", dtString))

	p.prefix = "init/"
	var filled []string
	for i := range p.tables {
		t := &p.tables[i]
		if t.count == 0 {
			continue
		}
		numbers := p.apply("Range", []string{p.number(0), p.number(t.count), p.number(1)}, typed("Tidx", dtInt64))
		filled = append(filled, "^"+p.apply("LookupTableImportV2", []string{t.handle, t.ids.read, numbers}, typed("Tin", dtInt64), typed("Tout", dtInt64)))
	}
	p.add(initOp, "NoOp", filled)
}

// saverDef is a SaverDef (tensorflow/core/protobuf/saver.proto) of version 2.
func saverDef() protofield.Message {
	var m protofield.Message
	m.Text(1, saverFile+":0")
	m.Text(2, saverSave+":0")
	m.Text(3, saverRestore)
	m.Int(7, 2)
	return m
}

// collection is the list of variables, a CollectionDef of VariableDefs.
func (p *program) collection() protofield.Message {
	var list, m protofield.Message
	for _, v := range p.all() {
		var def protofield.Message
		def.Text(1, v.handle+":0")
		def.Text(2, v.assign)
		def.Text(3, v.read+":0")
		def.Int(5, 1)
		list.Bytes(1, def)
	}
	m.Bytes(2, list)
	return m
}
