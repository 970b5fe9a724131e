package main

import (
	"os"
	"path/filepath"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
)

// A rulesCache is the path of a file with the last rules that were read; "" is none.
type rulesCache string

// write puts rules into the file, whole or not at all. Only the service's user may read it, as rules can name API keys.
func (c rulesCache) write(set *rules.Set) (err error) {
	if c == "" {
		return nil
	}
	text, err := store.Encode(set.Rules())
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(c)), filepath.Base(string(c))+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the error says what is wrong
		}
	}()
	if _, err = file.Write(text); err != nil {
		_ = file.Close() // as above
		return err
	}
	if err = file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), string(c))
}

// read returns the rules of the file.
func (c rulesCache) read(options rules.Options) (*rules.Set, error) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return nil, err
	}
	list, err := store.Decode(string(c), text)
	if err != nil {
		return nil, err
	}
	return rules.Compile(list, options)
}
