package document_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/document"
)

type written struct {
	Text   string            `doc:"text"`
	Off    bool              `doc:"on" is:"one-of true false"`
	Mode   uint8             `doc:"mode" is:"one-of open closed local"`
	Count  int               `doc:"count"`
	Wait   time.Duration     `doc:"wait"`
	Names  []string          `doc:"names" one:"name" is:"names"`
	Scope  []string          `doc:"scope" one:"scope" is:"names"`
	Labels map[string]string `doc:"labels"`
	Inner  struct {
		Deep string `doc:"deep"`
	} `doc:"inner"`
	Parts   []part `doc:"parts"`
	Own     int    `doc:"own"`
	Ignored string
}

// What is written is read as the same, names are in the order of the fields, and what is zero is left out.
func TestWrite(t *testing.T) {
	names := document.Kinds{"names": func(field any, _ []string) document.Reader {
		return document.List(field.(*[]string), "names", func(text string) (string, bool) { return text, true })
	}}
	for want, of := range map[string]written{
		`null`: {Ignored: "x", Names: []string{}, Labels: map[string]string{}},
		`{"text":"<\"a\">\n","on":false,"mode":"local","count":-7,"wait":"90s","name":"b","scope":["c","d"],"labels":{"x":"","y":"é"},"inner":{"deep":"e"},"parts":[{"name":"f"},{}]}`: {
			Text: "<\"a\">\n", Off: true, Mode: 2, Count: -7, Wait: 90 * time.Second, Names: []string{"b"}, Scope: []string{"c", "d"},
			Labels: map[string]string{"y": "é", "x": ""}, Inner: struct {
				Deep string `doc:"deep"`
			}{"e"}, Parts: []part{{Name: "f"}, {}},
		},
	} {
		v := document.Write(&of, "", func(any, string) (document.Value, bool) { return document.Value{}, false })
		text := v.JSON()
		if string(text) != want {
			t.Errorf("got %s, want %s", text, want)
		}
		var faults document.Faults
		var read written
		names.Read(document.Root("it", ""), document.JSON("it", text, &faults), &read, &faults)
		if err := faults.Err(); err != nil || want != `null` && !reflect.DeepEqual(read, of) {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
	}
	v := document.Write(&written{Own: 7, Scope: []string{"c"}}, "", func(of any, _ string) (document.Value, bool) {
		n, is := of.(*int)
		return document.Value{Kind: document.KindText, Text: "seven"}, is && *n == 7
	})
	if got := string(v.JSON()); got != `{"scope":"c","own":"seven"}` {
		t.Error(got)
	}
}
