package metric_test

import (
	"fmt"

	"github.com/monolith-go/monolith/model/metric"
)

func ExampleAUC() {
	auc, ok := metric.AUC([]float32{0.9, 0.4, 0.4, 0.1}, []float32{1, 1, 0, 0}, nil)
	fmt.Println(auc, ok)
	_, ok = metric.AUC([]float32{0.9, 0.4}, []float32{1, 1}, nil)
	fmt.Println(ok)
	// Output:
	// 0.875 true
	// false
}

func ExampleMetric() {
	var work metric.Workspace
	clicks := metric.Set{Predictions: []float32{0.9, 0.4, 0.4, 0.1}, Labels: []float32{1, 1, 0, 0}}
	for _, name := range []string{"auc", "log_loss", "calibration"} {
		m, _ := metric.Find(name)
		fmt.Printf("%-12s %.3f (%s)\n", m.Name, m.Compute(&work, &clicks), m.Direction)
	}
	// Output:
	// auc          0.875 (higher is better)
	// log_loss     0.409 (lower is better)
	// calibration  0.900 (1 is best)
}

func ExampleWindow() {
	w := metric.NewWindow(3)
	w.Add(1, []float32{0.2, 0.9}, []float32{1, 1}, nil, nil)
	w.Add(1, []float32{0.1, 0.3}, []float32{0, 0}, nil, nil) // the first example has left the window
	for _, name := range []string{"auc", "calibration"} {
		m, _ := metric.Find(name)
		fmt.Printf("%s %.2f of %d examples\n", name, w.Compute(m), w.Len())
	}
	// Output:
	// auc 1.00 of 3 examples
	// calibration 1.30 of 3 examples
}
