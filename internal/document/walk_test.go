package document_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
)

// A pair is read by itself: a text, or two in a list.
type pair [2]string

func (p *pair) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	switch {
	case v.Kind == document.KindText:
		*p = pair{v.Text, v.Text}
	case len(v.Items) == 2:
		*p = pair{v.Items[0].Text, v.Items[1].Text}
	default:
		faults.Invalid(path.String(), v, "a text, or two")
	}
}

// A colour unmarshals itself.
type colour string

func (c *colour) UnmarshalText(text []byte) error {
	if *c = colour(text); *c != "red" && *c != "blue" {
		return stint.Invalid("colour", string(text), "red or blue")
	}
	return nil
}

type part struct {
	Name string `doc:"name"`
	Size int64  `doc:"size" is:"size 1KiB 1MiB" zero:"none"`
}

type shared struct {
	Ratio int `doc:"ratio" is:"half" value:"N"`
}

type whole struct {
	Text    string            `doc:"text" default:"a" value:"TEXT"`
	Count   int               `doc:"count"`
	Long    int64             `doc:"long" is:"integer -5 5"`
	Wait    time.Duration     `doc:"wait" is:"duration 1ms 1m" value:"DURATION"`
	Pause   time.Duration     `doc:"pause"`
	Format  string            `doc:"format" is:"one-of text json" zero:"default"`
	Mode    uint8             `doc:"mode" is:"one-of open closed local"`
	Signed  int               `doc:"signed" is:"one-of a b"`
	Reject  bool              `doc:"reject" is:"one-of match reject"`
	Colour  colour            `doc:"colour"`
	Pair    pair              `doc:"pair"`
	Parts   []part            `doc:"parts" of:"parts"`
	Names   []pair            `doc:"names" one:"name"`
	Texts   map[string]string `doc:"texts"`
	Length  int               `doc:"length" is:"length"`
	Pairs   []pair            `doc:"pairs"`
	Shared  shared            `doc:",inline"`
	Section struct {
		On   bool   `doc:"on" default:"true"`
		Deep part   `doc:"deep"`
		Key  string `doc:"key" is:"one-of k" secret:"all" value:"KEY"`
		URL  string `doc:"url" is:"one-of u" secret:"url"`
		Off  string `doc:"off" is:"one-of x" zero:"off"`
		Port int    `doc:"port" is:"integer 1 9" zero:"off"`
	} `doc:"section"`
	Ignored string
}

var kinds = document.Kinds{
	"half": func(field any, _ []string) document.Reader { return document.Integer(field.(*int), 0, 2) },
	"length": func(field any, _ []string) document.Reader {
		return document.ReaderFunc(func(path document.Path, v document.Value, faults *document.Faults) {
			if *field.(*int) = len(v.Items); len(v.Items) == 0 {
				faults.Add(v.At, "%s has no items", path)
			}
		})
	},
}

func readWhole(text string) (whole, string) {
	var faults document.Faults
	into := whole{Text: "as before"}
	kinds.Read(document.Root("the whole", ""), document.Parse("w.yaml", []byte(text), 1<<20, &faults), &into, &faults)
	if err := faults.Err(); err != nil {
		return into, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "stint: "), "w.yaml:", "")
	}
	return into, ""
}

func TestRead(t *testing.T) {
	got, faults := readWhole(`
count: 7
long: -5
wait: 1s
pause: 1d
format: json
mode: local
signed: b
reject: reject
colour: blue
pair: [a, b]
parts:
- {name: one, size: 2KiB}
- {size: none}
pairs: [c, [d, e]]
name: [f, g]
texts: {a: b, "": c}
length: [1, 2, 3]
ratio: 2
section: {on: true, deep: {name: two}, off: , port: off}
`)
	want := whole{
		Text: "as before", Count: 7, Long: -5, Wait: time.Second, Pause: 24 * time.Hour, Format: "json", Mode: 2, Signed: 1, Reject: true, Colour: "blue", Pair: pair{"a", "b"},
		Parts: []part{{"one", 2048}, {}}, Pairs: []pair{{"c", "c"}, {"d", "e"}}, Names: []pair{{"f", "g"}},
		Texts: map[string]string{"a": "b", "": "c"}, Length: 3, Shared: shared{2},
	}
	want.Section.On, want.Section.Deep.Name = true, "two"
	if faults != "" || !reflect.DeepEqual(got, want) {
		t.Errorf("%s, got\n%+v\nwant\n%+v", faults, got, want)
	}
	if got, faults := readWhole(""); faults != "" || got.Text != "as before" {
		t.Errorf("nothing: %+v, %s", got, faults)
	}
}

func TestReadTellsAllFaults(t *testing.T) {
	_, got := readWhole(`text: 5
count: "7"
long: 6
wait: 2m
pause: 5
format: xml
mode: 1
reject: yes
colour: 5
pair: {}
parts: [{nam: a, size: 2MiB}, 5]
pairs: a
names: []
name: {}
texts: {a: 5}
length:
ratio: 3
section: {on: 1, deep: [], key: [hunter2], url: "redis://u:p@h", off: y, port: 0}
Ignored: a
`)
	const want = `1:7: text is 5; allowed: a text
2:8: count is "7"; allowed: -9223372036854775808 to 9223372036854775807
3:7: long is 6; allowed: -5 to 5
4:7: wait is "2m"; allowed: 1ms to 1m
5:8: pause is 5; allowed: a number with a unit (us, ms, s, m, h, d), such as 500ms, 90s or 1d12h (5 has no unit; did you mean 5ms or 5s?)
6:9: format is "xml"; allowed: text, json or default
7:7: mode is 1; allowed: open, closed or local
8:9: reject is "yes"; allowed: match or reject
9:9: colour is 5; allowed: red or blue
10:7: pair is a mapping; allowed: a text, or two
11:10: "nam" is not a name in parts[0] (did you mean name?); allowed: name, size
11:24: parts[0].size is "2MiB"; allowed: a number of bytes such as 64KiB or 1GiB, 1KiB to 1MiB, or none
11:31: parts[1] is 5; allowed: a mapping with name, size
12:8: pairs is "a"; allowed: a list
13:1: names is given as well as name; allowed: one of them
14:7: name[0] is a mapping; allowed: a text, or two
15:12: texts.a is 5; allowed: a text
16:1: length has no items
17:8: ratio is 3; allowed: 0 to 2
18:15: section.on is 1; allowed: true or false
18:24: section.deep is an empty list; allowed: a mapping with name, size
18:33: section.key is a list; allowed: k
18:49: section.url is "redis://redacted@h"; allowed: u
18:71: section.off is "y"; allowed: x or off
18:80: section.port is 0; allowed: 1 to 9, or off
19:1: "Ignored" is not a name in the whole; allowed: text, count, long, wait, pause, format, mode, signed, reject, colour, pair, parts, name, names, texts, length, pairs, ratio, section`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A value of another kind is refused for its kind, whatever its text says, by the words of what is parsed.
func TestParsedOfAnotherKind(t *testing.T) {
	var name string
	parse := func(text string) (string, error) {
		if text == "" {
			return "", stint.Invalid("name", text, "letters")
		}
		return text, nil
	}
	for kind, want := range map[document.Kind]string{
		document.KindText: "", document.KindUntyped: "", document.KindInteger: "letters", document.KindBoolean: "letters",
	} {
		got := ""
		document.Parsed(&name, parse, document.KindText)(document.Value{Kind: kind, Text: "7"}, func(_ document.Value, allowed string) { got = allowed })
		if got != want {
			t.Errorf("a value of kind %v: allowed %q, want %q", kind, got, want)
		}
	}
}

// A struct's settings are what flags and the environment can give, which have no types.
func TestSettings(t *testing.T) {
	var into whole
	var faults document.Faults
	for _, s := range kinds.Settings(&into) {
		text := map[string]string{"text": "5", "wait": "1s", "ratio": "1", "section.on": "TRUE", "section.key": "hunter2"}[s.Name]
		s.Set(document.Value{At: document.Position{Source: "--" + s.Name}, Kind: document.KindUntyped, Text: text}, &faults)
	}
	if into.Text != "5" || into.Wait != time.Second || into.Shared.Ratio != 1 || !into.Section.On {
		t.Errorf("%+v", into)
	}
	if got := faults.Error(); got != `stint: --section.key: section.key is "redacted"; allowed: k` {
		t.Error(got)
	}
}
