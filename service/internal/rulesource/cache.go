package rulesource

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A Cache is the path of a file with the last rules that were read; "" is none.
type Cache string

// Write puts rules into the file, which there is, whole or not at all. Only the service's user may read it, as
// rules can name API keys. The file is replaced by a rename, so that a crash leaves the old one or
// the new one.
func (c Cache) Write(set *rules.Set) error {
	text, err := rulestore.Encode(set.Rules())
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(c)), filepath.Base(string(c))+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), string(c))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error says what is wrong
	}
	return err
}

// Read returns the rules of the file. They are compiled again, since another version may have
// written them.
func (c Cache) Read(options rules.Options) (*rules.Set, error) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return nil, err
	}
	list, err := rulestore.Decode(string(c), text)
	if err != nil {
		return nil, err
	}
	return rules.Compile(list, options)
}
