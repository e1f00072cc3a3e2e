package zoo_test

import (
	"fmt"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/zoo"
)

func ExampleNew() {
	m, err := zoo.New(zoo.Config{
		Name:     zoo.FM,
		Features: []zoo.Feature{{Name: "user"}, {Name: "genres", Combiner: graph.Mean}, {Name: "age", Kind: model.Dense, Dim: 1}},
		Dim:      8,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range m.Layout().Tables[0].Segments {
		fmt.Println(s.Name, s.Dim)
	}
	for _, t := range m.Layout().Dense {
		fmt.Println(t.Name, t.Shape)
	}

	_, err = zoo.New(zoo.Config{Name: "fmm", Features: []zoo.Feature{{Name: "user"}}})
	fmt.Println(err)
	// Output:
	// bias 1
	// vec 8
	// linear.weight [1 1]
	// linear.bias [1]
	// dense.vectors [1 8]
	// zoo: model "fmm" is unknown, did you mean "fm"?
}
