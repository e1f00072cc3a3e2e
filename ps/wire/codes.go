package wire

// Codes returns the codes of the known errors that err is, for calls beside the streams; see [Remote].
func Codes(err error) []byte { return codesOf(err) }

// Remote returns an error with the text of another process that is, for errors.Is, what its codes say.
func Remote(text string, codes []byte) error {
	e := &remoteError{text: text}
	for _, code := range codes {
		for _, c := range errorCodes {
			if c.code == code {
				e.errs = append(e.errs, c.err)
			}
		}
	}
	return e
}
