package parse

// SplitCSV cuts one csv record into fields, for the comparison with encoding/csv.
func SplitCSV(record []byte) ([]string, error) {
	s := splitter{delimiter: []byte{','}, quoted: true}
	fields, err := s.fields(nil, record)
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = string(f)
	}
	return out, err
}

// Condition reads a comparison and applies it to each value.
func Condition(s string, values ...float32) ([]float32, error) {
	c, err := parseCondition(s)
	if err != nil {
		return nil, err
	}
	var out []float32
	for _, v := range values {
		out = append(out, c.apply(v))
	}
	return out, nil
}

// ParseInt and ParseFloat are the number readers, for the comparison with strconv.
var (
	ParseInt   = parseInt
	ParseFloat = parseFloat
)

// ByRows makes a processor of columns add them row by row.
func ByRows(p any) { p.(*columnProcessor).byRows = true }
