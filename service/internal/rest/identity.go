package rest

import (
	"net/http"

	"github.com/stint-go/stint/service/internal/config"
)

// readIdentity takes from the header who asks. An empty field is as good as none. A field that stands twice
// is an error: a proxy that adds to what a client sent would let the client choose.
func readIdentity(i *config.Identity, e *evaluation, header http.Header) (err error) {
	if e.request.User, err = single(header, i.User); err != nil {
		return err
	}
	if e.request.APIKey, err = single(header, i.APIKey); err != nil {
		return err
	}
	for attribute, field := range i.Attributes {
		value, err := single(header, field)
		if err != nil {
			return err
		}
		if value != "" {
			e.attributes[attribute] = value
		}
	}
	e.request.Attributes = e.attributes
	return nil
}
