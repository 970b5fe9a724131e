package file

import (
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
)

// ParseSet reads the rules of one document as [Parse] does, and makes a set of them. Everything that
// is wrong is reported at once: how rules are written, and of those that could be read what does not make
// sense, each at its place. list are the rules that were read, also with an error, which is
// [document.Faults].
func ParseSet(name string, data []byte, options rules.Options) (set *rules.Set, list []rules.Rule, err error) {
	return setOf([]source{{name, data}}, options)
}

// ReadSet reads the rules of a file or a folder as [Read] does, and makes a set of them. It reports
// what [ParseSet] does.
func ReadSet(path string, options rules.Options) (*rules.Set, error) {
	sources, err := load(path)
	if err != nil {
		return nil, err
	}
	set, _, err := setOf(sources, options)
	return set, err
}

// setOf makes a set of the rules of several files.
func setOf(sources []source, options rules.Options) (*rules.Set, []rules.Rule, error) {
	documents := parseEach(sources)
	list, positions, err := together(documents)
	var senseless error
	if err == nil {
		set, err := rules.Compile(list, options)
		if err == nil {
			return set, list, nil
		}
		senseless = err
	}
	var faults document.Faults
	for _, d := range documents {
		d.check(options)
		faults.Join(d.faults)
	}
	if len(faults) == 0 {
		locate(senseless, positions, &faults) // what is wrong with all of them together
	}
	return nil, list, faults.Err()
}

// parseEach reads the rules of several files, each ID of which may be there only once.
func parseEach(sources []source) []*parsed {
	first := map[string]document.Position{}
	documents := make([]*parsed, 0, len(sources))
	for _, s := range sources {
		d := parse(s.name, s.data)
		d.once(first)
		documents = append(documents, d)
	}
	return documents
}

// together are the rules of several documents, and where they begin, also with an error.
func together(documents []*parsed) (list []rules.Rule, positions []document.Position, err error) {
	var faults document.Faults
	for _, d := range documents {
		list, positions = append(list, d.rules...), append(positions, d.positions()...)
		faults.Join(d.faults)
	}
	return list, positions, faults.Err()
}
