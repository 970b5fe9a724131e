package rulefile

import (
	"reflect"
	"strings"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/rules"
)

// aStatus is what a status may be.
const aStatus = "a status such as 401, or a class such as 4xx"

// count reads which answers count; a mapping that names none is a fault.
func count(of *rules.Count) document.ReaderFunc {
	return func(path document.Path, v document.Value, faults *document.Faults) {
		sound := len(*faults)
		document.Kinds{"statuses": document.Of(statuses)}.Read(path, v, of, faults)
		if v.Kind == document.KindMapping && len(of.Status) == 0 && len(*faults) == sound {
			faults.Add(v.At, "%s has no status; allowed: status: a list of statuses such as 401, or classes such as 4xx", path)
		}
	}
}

// statuses reads a list of statuses and classes of them, or one by itself.
func statuses(list *[]int) document.ReaderFunc {
	return func(path document.Path, v document.Value, faults *document.Faults) {
		items, item := v.Items, path.Item
		if v.Kind != document.KindList && v.Kind != document.KindNull {
			items, item = []document.Value{v}, func(int) document.Path { return path }
		}
		for i := range items {
			var status int
			document.Scalar(aStatus, func(text string) bool {
				class, all := strings.CutSuffix(strings.ToLower(text), "xx")
				n, ok := document.ParseInteger(class)
				status = int(n)
				return ok && (all && n >= 1 && n <= 5 || !all && n >= 100 && n <= 599)
			}, document.KindInteger, document.KindText).ReadDocument(item(i), items[i], faults)
			*list = append(*list, status)
		}
	}
}

// countSchema is that of what count reads.
func countSchema() schema {
	of := ofStruct(reflect.TypeFor[rules.Count]())
	of["required"] = []any{"status"}
	return of
}
