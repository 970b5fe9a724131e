package document_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/must"
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
	got, faults := readWhole(string(must.Get(os.ReadFile("testdata/whole.yaml"))(t)))
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
	_, got := readWhole(string(must.Get(os.ReadFile("testdata/wrong.yaml"))(t)))
	want := string(must.Get(os.ReadFile("testdata/wrong.txt"))(t))
	if got+"\n" != want {
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
