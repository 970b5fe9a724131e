// Package rulefile reads rules as people write them, in files and folders of YAML and JSON, and writes
// them again.
//
//	set, err := rulefile.ReadSet("/etc/stint/rules", rules.Options{})
//
// A document is a list of rules, or a mapping with such a list under the name rules. Reading is
// strict: an unknown name, a wrong type and a value out of range are faults. All of them are
// reported at once, as [document.Faults] with line and column. [Limit], [Limits], [Rule] and
// [Rules] read parts of other documents.
//
// A [Source] follows a path, and keeps the rules that it has while what is there can't be used. [JSON] writes a rule in
// the form that is read back as the same rule.
package rulefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// MaxBytes bounds a document of rules: 100,000 rules of 300 bytes, as JSON. As YAML it may
// have less, see [document.Parse].
const MaxBytes = 32 << 20

// Parse reads the rules of one document, and where each of them begins. A source whose name
// ends in .json is JSON, every other one is YAML. The document is a list of rules or a mapping
// with one under the name rules; an empty document is not taken for an empty list,
// since it may be half of a file. The error is [document.Faults].
//
// What is returned is well written. Whether it makes sense [rules.Compile] says, and [ParseSet]
// both.
func Parse(name string, data []byte) ([]rules.Rule, []document.Position, error) {
	return parse([]Text{{Name: name, Data: data}}).list()
}

// ParseSet reads the rules of one document as [Parse] does, and makes a set of them. Everything that
// is wrong is reported at once: how rules are written, and of those that could be read what does not make
// sense, each at its place. list are the rules that were read, also with an error, which is
// [document.Faults].
func ParseSet(name string, data []byte, options rules.Options) (set *rules.Set, list []rules.Rule, err error) {
	return parse([]Text{{Name: name, Data: data}}).set(nil, options)
}

// ParsePart is ParseSet for a document whose rules take the place of those with the same IDs in
// options.Previous, or are added to it. A fault that they make of another rule of that set is told of
// the document.
func ParsePart(name string, data []byte, options rules.Options) (set *rules.Set, list []rules.Rule, err error) {
	d := parse([]Text{{Name: name, Data: data}})
	others := slices.DeleteFunc(cmp.Or(options.Previous, new(rules.Set)).Rules(),
		func(r rules.Rule) bool { _, given := d.first[r.ID]; return given })
	return d.set(others, options)
}

// ReadSet reads the rules of a file, or of all files of a folder in the order of their names, and makes a set of them.
// In a folder, files count whose names end in .yaml, .yml or .json and do not start with a dot; folders in it are left
// out. An ID may be there only once in all files. It reports what [ParseSet] does.
func ReadSet(path string, options rules.Options) (*rules.Set, error) {
	sources, err := load(path)
	if err != nil {
		return nil, err
	}
	set, _, err := parse(sources).set(nil, options)
	return set, err
}

// A reading is what was read of one or more sources.
type reading struct {
	names  []string // of the sources
	rules  []rules.Rule
	items  []document.Value             // of each rule
	within document.Faults              // the faults that may be in rules
	first  map[string]document.Position // of each ID
	faults document.Faults
}

// parse reads documents, all of which may have an ID only once.
func parse(sources []Text) *reading {
	all := &reading{first: map[string]document.Position{}}
	for _, s := range sources {
		d := &reading{}
		d.read(s)
		all.names = append(all.names, s.Name)
		for i := range d.rules {
			id, at := d.rules[i].ID, d.items[i].At
			if was, twice := all.first[id]; twice {
				d.faults.AddOf(id, at, "rule %q is given twice, first at %v", id, was)
			} else if id != "" {
				all.first[id] = at
			}
		}
		all.rules, all.items, all.within = append(all.rules, d.rules...), append(all.items, d.items...),
			append(all.within, d.within...)
		all.faults.Join(d.faults)
	}
	return all
}

// read reads a document.
func (d *reading) read(s Text) {
	whole := document.Parse(s.Name, s.Data, MaxBytes, &d.faults)
	read := len(d.faults)
	if read > 0 && whole.Kind == document.KindNull {
		return // nothing could be read
	}
	list, found := d.find(whole)
	if !found {
		return
	}
	framed := len(d.faults)
	d.rules = Rules(list, "rules", &d.faults)
	d.items, d.within = list.Items, slices.Concat(d.faults[:read], d.faults[framed:])
}

// find is the list of rules in a document, which has one.
func (d *reading) find(whole document.Value) (list document.Value, found bool) {
	list = whole
	if whole.Kind == document.KindMapping {
		if name := configured(whole); name != "" {
			d.faults.Add(whole.At, "the document has %q, as a configuration of the service has; allowed: "+
				"a list of rules, or a mapping with one under rules: those of a configuration are under its rules, "+
				"or where its rules_from says. A configuration is checked by stint doctor --config", name)
			return list, false
		}
		list = document.Value{At: whole.At}
		for _, f := range whole.Fields {
			if f.Name == "rules" {
				list = f.Value
			} else {
				d.faults.Unknown("the document", f, []string{"rules"})
			}
		}
	}
	if list.Kind == document.KindNull {
		d.faults.Add(list.At, "there are no rules; allowed: a list of rules, [] for none")
		return list, false
	}
	return list, true
}

// configured is a name in a mapping that configurations of the service have and nothing else is likely to;
// "" if there is none.
func configured(whole document.Value) string {
	for _, f := range whole.Fields {
		switch f.Name {
		case "listen", "admin_listen", "store", "policies", "rules_from", "trusted_proxies":
			return f.Name
		}
	}
	return ""
}

// list returns the rules and where they begin, or everything that is wrong with how they are
// written.
func (d *reading) list() ([]rules.Rule, []document.Position, error) {
	if err := d.faults.Err(); err != nil {
		return nil, nil, err
	}
	positions := make([]document.Position, len(d.items))
	for i, item := range d.items {
		positions[i] = item.At
	}
	return d.rules, positions, nil
}

// set makes a set of the rules and others, or tells all that is wrong: of rules that could be read also
// what does not make sense.
func (d *reading) set(others []rules.Rule, options rules.Options) (*rules.Set, []rules.Rule, error) {
	if len(d.faults) > document.MaxFaults {
		return nil, d.rules, d.faults.Err() // nobody is told of more
	}
	set, err := rules.Compile(slices.Concat(others, d.rules), options)
	if err == nil && len(d.faults) == 0 {
		return set, d.rules, nil
	}
	hidden := consequences(d.items, d.within)
	tell(&d.faults, err, d.names, func(fault *rules.Fault) (at document.Position, known bool) {
		if fault.Index -= len(others); fault.Index < 0 {
			return document.Position{Source: d.names[0]}, len(d.within) > 0
		}
		item := d.items[fault.Index]
		return place(item, fault.Param), hidden(fault) ||
			fault.Param == "id" && fault.ID != "" && d.first[fault.ID] != item.At
	})
	slices.SortStableFunc(d.faults[:min(len(d.faults), document.MaxFaults)], func(a, b document.Fault) int {
		return slices.Index(d.names, a.Position.Source) - slices.Index(d.names, b.Position.Source)
	})
	return nil, d.rules, d.faults.Err()
}

// tell records what is wrong with rules that were read, where place says, or in the first source if it is with all of
// them.
func tell(
	faults *document.Faults,
	err error,
	sources []string,
	place func(*rules.Fault) (at document.Position, known bool),
) {
	for _, part := range Unjoin[error](err) {
		fault, ok := errors.AsType[*rules.Fault](part)
		if !ok {
			faults.Add(document.Position{Source: strings.Join(sources[:min(1, len(sources))], "")}, "%v", part)
		} else if at, known := place(fault); !known {
			faults.AddOf(fault.ID, at, "%v", fault)
		}
	}
}

// Check records what does not make sense in the rules that [Rules] made of a document's field
// rules, each fault at its place. It records nothing that may follow from a fault that is there
// already.
func Check(whole document.Value, list []rules.Rule, options rules.Options, faults *document.Faults) {
	field := slices.IndexFunc(whole.Fields, func(f document.Field) bool { return f.Name == "rules" })
	if field < 0 || len(whole.Fields[field].Value.Items) != len(list) {
		return // they could not be read
	}
	items := whole.Fields[field].Value.Items
	within := slices.DeleteFunc(slices.Clone(*faults), func(fault document.Fault) bool {
		return fieldAt(whole, fault.Position) != field
	})
	_, err := rules.Compile(list, options)
	hidden := consequences(items, within)
	tell(faults, err, []string{whole.At.Source}, func(fault *rules.Fault) (at document.Position, known bool) {
		return place(items[fault.Index], fault.Param), hidden(fault)
	})
}

// mostReads is how often files are read that change meanwhile.
const mostReads = 10

// load reads the files that a path stands for, as they were at one moment: one that is replaced, or a link that
// is swapped, after some were read and before others shows in a second reading.
func load(path string) ([]Text, error) {
	return settled(path, func() ([]Text, error) { return readAll(path) })
}

// settled reads until it finds the same twice in a row.
func settled(path string, read func() ([]Text, error)) ([]Text, error) {
	sources, err := read()
	for range mostReads {
		before, said := sources, fmt.Sprint(err)
		sources, err = read()
		if fmt.Sprint(err) == said && slices.EqualFunc(sources, before, Text.equal) {
			return sources, err
		}
	}
	var faults document.Faults
	faults.Add(document.Position{Source: path}, "%v", stint.Invalid("what is there",
		document.Verbatim("changed whenever it was read"), "files that stay as they are while they are read"))
	return nil, faults.Err()
}

func (t Text) equal(o Text) bool { return t.Name == o.Name && bytes.Equal(t.Data, o.Data) }

// readAll reads each file once.
func readAll(path string) ([]Text, error) {
	var faults document.Faults
	names, err := list(path)
	if err != nil {
		faults.Add(document.Position{Source: path}, "%v", err)
	}
	return readFiles(names, &faults), faults.Err()
}

// readFiles reads files up to MaxBytes each. One that can't be read is a fault, and a source
// without text.
func readFiles(names []string, faults *document.Faults) []Text {
	sources := make([]Text, 0, len(names))
	for _, name := range names {
		data, err := Bytes(name, MaxBytes)
		if err != nil {
			faults.Add(document.Position{Source: name}, "%v", err)
		}
		sources = append(sources, Text{name, data, err})
	}
	return sources
}

// list names the files that a path stands for. The error does not repeat the path.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, cause(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, cause(err)
	}
	var names []string
	for _, entry := range entries { // in order of their names
		name := filepath.Join(path, entry.Name())
		extensions := []string{".yaml", ".yml", ".json"}
		if strings.HasPrefix(entry.Name(), ".") || !slices.Contains(extensions, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		if info, err := os.Stat(name); err != nil || !info.IsDir() { // a link that leads nowhere is a fault
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, stint.Invalid(
			"the folder", document.Verbatim("without files of rules"), "one or more files *.yaml, *.yml or *.json",
		)
	}
	return names, nil
}

// cause is what an error of the file system says beside the name.
func cause(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// Bytes reads a regular file of at most so many bytes. The error does not repeat the name.
func Bytes(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > most) {
		return nil, stint.Invalid(
			"the file", document.Verbatim(fmt.Sprintf("%v of %d bytes", info.Mode(), info.Size())),
			fmt.Sprintf("a regular file of at most %d bytes", most),
		)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	return data, prefix.Join(cause(err))
}
