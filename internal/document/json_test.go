package document_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
)

func TestParseJSON(t *testing.T) {
	var faults document.Faults
	v := document.JSON("s", []byte("{ \"ä\" : [1, -2.5,\n\ttrue,null, \"ü\" ],\r\n\"b\":{}, \"b\": 5 }\n"), &faults)
	if got := faults.Error(); got != `stint: s:3:9: "b" is given twice, first in line 3` {
		t.Error(got)
	}
	at := func(line, column int) document.Position {
		return document.Position{Source: "s", Line: line, Column: column}
	}
	want := document.Value{At: at(1, 1), Kind: document.KindMapping, Fields: []document.Field{
		{At: at(1, 3), Name: "ä", Value: document.Value{At: at(1, 9), Kind: document.KindList, Items: []document.Value{
			{At: at(1, 10), Kind: document.KindInteger, Text: "1"},
			{At: at(1, 13), Kind: document.KindFloat, Text: "-2.5"},
			{At: at(2, 2), Kind: document.KindBoolean, Text: "true"},
			{At: at(2, 7)},
			{At: at(2, 13), Kind: document.KindText, Text: "ü"},
		}}},
		{At: at(3, 1), Name: "b", Value: document.Value{At: at(3, 5), Kind: document.KindMapping}},
	}}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v, want %+v", v, want)
	}
}

func TestNotJSON(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "s:1:1: not JSON: the text ends too soon",
		"[1,\n 2":                    "s:2:3: not JSON: the text ends too soon",
		"{\"a\": }":                  "s:1:7: not JSON: ",
		"[1 2]":                      "s:1:4: not JSON: ",
		"[1] 2":                      "s:1:5: not JSON: invalid character '2' after top-level value",
		"{5: 1}":                     "s:1:2: not JSON: ",
		"\"\xff\"":                   "s:1:1: not JSON: the text is not UTF-8",
		"nul":                        "s:1:3: not JSON: ",
		strings.Repeat("[", 65):      "s:1:65: not JSON: nested too deep",
		strings.Repeat("[", 1e6):     "s:1:65: not JSON: nested too deep",
		strings.Repeat("{\"\":", 70): "s:1:257: not JSON: nested too deep",
	} {
		var faults document.Faults
		v := document.JSON("s", []byte(text), &faults)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "stint: "+want) || v.Kind != document.KindNull {
			t.Errorf("%.20q: %+v, %v; want %s", text, v, faults, want)
		}
	}
	var faults document.Faults
	if v := document.JSON("s", []byte(strings.Repeat("[", 64)+strings.Repeat("]", 64)), &faults); len(faults) > 0 || v.Kind != document.KindList {
		t.Errorf("%v, %v", v, faults)
	}
}

// What is wrong with JSON is said by its own names, not by Go's.
func TestJSONFault(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 5}`:          "a is a number; allowed: a string",
		`{"b": {"c": "x"}}`: "b.c is a string; allowed: a number",
		`{"b": [1]}`:        "b is a list; allowed: an object",
		`{"d": {}}`:         "d is an object; allowed: a list",
		`{"e": "true"}`:     "e is a string; allowed: true or false",
		`[]`:                "the whole is a list; allowed: an object",
		`{"f": 1}`:          `unknown field "f"`,
		`{"a": "x"`:         "the text ends too soon",
		``:                  "the text ends too soon",
		`{"a": x}`:          "invalid character 'x' looking for beginning of value",
	} {
		var into struct {
			A string `json:"a"`
			B struct {
				C int `json:"c"`
			} `json:"b"`
			D []string `json:"d"`
			E bool     `json:"e"`
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if got := document.JSONFault(d.Decode(&into)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
