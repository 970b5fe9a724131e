package document_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/testtable"
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
	type row struct{ Text, Want string }
	rows := testtable.Rows[row](t, "testdata/not_json.txt")
	for _, n := range []int{65, 1e6} {
		rows = append(rows, row{strings.Repeat("[", n), "s:1:65: not JSON: nested too deep"})
	}
	for _, test := range append(rows, row{strings.Repeat("{\"\":", 70), "s:1:257: not JSON: nested too deep"}) {
		var faults document.Faults
		v := document.JSON("s", []byte(test.Text), &faults)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "stint: "+test.Want) || v.Kind != document.KindNull {
			t.Errorf("%.20q: %+v, %v; want %s", test.Text, v, faults, test.Want)
		}
	}
	var faults document.Faults
	if v := document.JSON("s", []byte(strings.Repeat("[", 64)+strings.Repeat("]", 64)), &faults); len(faults) > 0 || v.Kind != document.KindList {
		t.Errorf("%v, %v", v, faults)
	}
}

// What is wrong with JSON is said by its own names, not by Go's.
func TestJSONFault(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/json_faults.txt") {
		var into struct {
			A string `json:"a"`
			B struct {
				C int `json:"c"`
			} `json:"b"`
			D []string `json:"d"`
			E bool     `json:"e"`
		}
		d := json.NewDecoder(strings.NewReader(test.Text))
		d.DisallowUnknownFields()
		if got := document.JSONFault(d.Decode(&into)); got != test.Want {
			t.Errorf("%s: %s, want %s", test.Text, got, test.Want)
		}
	}
}
