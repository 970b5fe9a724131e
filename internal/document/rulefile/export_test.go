package rulefile

import (
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/rules"
)

// Read is Parse of a file, or of the files of a folder, as ReadSet finds them.
func Read(path string) ([]rules.Rule, []document.Position, error) {
	sources, err := load(path)
	if err != nil {
		return nil, nil, err
	}
	return parse(sources).list()
}
