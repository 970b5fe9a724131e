package rulesapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules/notation"
)

// The media types of bodies.
var (
	jsonBody  = []string{"application/json"}
	patchBody = []string{"application/merge-patch+json", "application/json"}
	ruleBody  = []string{"application/json", "application/yaml", "application/x-yaml", "text/yaml"}
)

// body reads the request's body, which must be of one of the types, the first being JSON. The
// source names it in faults, as document.Parse does. The text is released when the call was served.
func (c *Call) body(most int64, types []string) (text, source string, err error) {
	mediaType, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(types, mediaType) {
		return "", "", &Refusal{
			Status: http.StatusUnsupportedMediaType,
			Detail: fmt.Sprintf("Content-Type is %q; allowed: %s", clip(c.r.Header.Get("Content-Type")), join(types)),
		}
	}
	tooLong := &Refusal{
		Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("the body is longer than %d bytes; allowed: up to %d bytes", most, most),
	}
	if c.r.ContentLength > most {
		c.w.Header().Set("Connection", "close") // rather than reading it to its end
		return "", "", tooLong
	}
	read := c.api.config.ReadBody
	if read == nil {
		read = readAll
	}
	text, c.release, err = read(http.MaxBytesReader(c.w, c.r.Body, most))
	switch {
	case err == nil:
	case errors.As(err, new(*http.MaxBytesError)):
		return "", "", tooLong
	case errors.As(err, new(*Refusal)):
		return "", "", err
	default:
		return "", "", &Refusal{Status: http.StatusBadRequest, Detail: "the body ended early or came too slowly"}
	}
	source = "body.json"
	if slices.Contains(ruleBody[1:], mediaType) {
		source = "body.yaml"
	}
	return text, source, nil
}

// readAll reads a body without a bound on the memory of all.
func readAll(from io.Reader) (text string, release func(), err error) {
	all, err := io.ReadAll(from)
	return string(all), nil, err
}

// noBody refuses a body where none is read.
func (c *Call) noBody() error {
	if c.r.ContentLength == 0 {
		return nil
	}
	return &Refusal{Status: http.StatusBadRequest, Detail: "there is a body; allowed: none, as the parameters are in the query"}
}

// value reads a body of one value, JSON or YAML.
func (c *Call) value(types []string, faults *notation.Faults) (notation.Value, error) {
	var value notation.Value
	err := c.parse(c.api.config.MaxBodyBytes, types, func(source string, text []byte) error {
		value = document.Parse(source, text, len(text), faults)
		return nil
	})
	return value, err
}

// parse reads the request's body, as body does, and has it parsed when its turn has come.
func (c *Call) parse(most int64, types []string, do func(source string, text []byte) error) error {
	text, source, err := c.body(most, types)
	if err != nil {
		return err
	}
	leave, err := c.api.reading.enter(c.r.Context(), len(text))
	if err != nil {
		return err
	}
	defer leave()
	return do(source, []byte(text))
}

// join lists names.
func join(names []string) string {
	text := ""
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			text += " or "
		default:
			text += ", "
		}
		text += name
	}
	return text
}
