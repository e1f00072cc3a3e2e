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

func ExampleWindow() {
	w := metric.NewWindow(3)
	w.Add([]float32{0.2, 0.9}, []float32{1, 1}, nil)
	w.Add([]float32{0.1, 0.3}, []float32{0, 0}, nil) // the first example has left the window
	s := w.Summary()
	fmt.Printf("%d examples: auc %.2f, calibration %.2f\n", s.Examples, s.AUC, s.Calibration)
	// Output: 3 examples: auc 1.00, calibration 1.30
}
