package example

// All returns every feature of a record by name, for looking into records whose names nobody knows yet. It agrees with a
// [Scanner] made for those names, and is slower. The values alias the record. Errors: [*MalformedError]; also for lists
// that are not well formed, which a Scanner leaves to the decoder of the list.
func All(record []byte) (map[string]Value, error) {
	names := map[string]struct{}{}
	err := messages(record, func(features []byte) error {
		return messages(features, func(entry []byte) error {
			name := ""
			err := messages(entry, func(key []byte) error { name = string(key); return nil })
			names[name] = struct{}{}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	s, err := NewScanner(list)
	if err != nil {
		return nil, err
	}
	values, err := s.Scan(record)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Value, len(list))
	for i, name := range list {
		v := values[i]
		switch v.Kind {
		case Bytes:
			_, err = v.AppendBytes(nil)
		case Float:
			_, err = v.AppendFloats(nil)
		case Int64:
			_, err = v.AppendInt64s(nil)
		case None:
		}
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// messages calls f with each field 1 of a message, passing over the others.
func messages(b []byte, f func([]byte) error) error {
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		if tag != tagMessage1 {
			q, err := skipField(b, p)
			if err != nil {
				return err
			}
			p = q
			continue
		}
		size, q := uvarint(b, at)
		if q < 0 || size > uint64(len(b)-q) {
			return errMalformed("features", p)
		}
		p = q + int(size)
		if err := f(b[q:p]); err != nil {
			return err
		}
	}
	return nil
}
