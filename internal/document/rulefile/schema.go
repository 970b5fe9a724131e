package rulefile

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
)

// A schema is one of JSON, or a part of one.
type schema = map[string]any

// Schema is the JSON schema of a list of rules, made of the tags by which [Rules] reads them. It refuses unknown names,
// wrong types and what a limit lacks or can't have; what depends on several parameters is left to the reader.
func Schema() map[string]any {
	rule := ofStruct(reflect.TypeFor[rules.Rule]())
	return schema{"type": []any{"array", "null"}, "maxItems": bounds.MaxRules, "items": rule}
}

// LimitsSchema is the JSON schema of the list of limits that [Limits] reads.
func LimitsSchema() map[string]any { return limitsSchema(integers(1, bounds.MaxPermits)) }

// LimitSchema is the JSON schema of the parameters that [Limit] reads over a built-in limit of an algorithm.
func LimitSchema(algorithm stint.Algorithm) map[string]any {
	properties := schema{}
	for i := range parameters {
		if p := &parameters[i]; p.belongs(algorithm) && p.name != "cost" {
			properties[p.name] = ofField(reflect.StructField{Type: reflect.TypeOf(p.field(new(stint.Limit))).Elem(), Tag: p.tag})
		}
	}
	return object(properties)
}

// object is that of a mapping with these names, or nothing.
func object(properties schema) schema {
	return schema{"type": []any{"object", "null"}, "additionalProperties": false, "properties": properties}
}

func limitsSchema(cost schema) schema {
	algorithms := append(notation.Algorithms(), stint.AlgorithmConcurrency)
	properties, choices, names := LimitSchema(0)["properties"].(schema), []any{}, []any{}
	properties["cost"] = cost
	for _, algorithm := range algorithms {
		spellings := []any{strings.ToLower(algorithm.String()), algorithm.String()}
		names = append(names, spellings...)
		required, allowed := []any{}, []any{"algorithm"}
		for i := range parameters {
			p := &parameters[i]
			if !p.belongs(algorithm) {
				continue
			}
			if allowed = append(allowed, p.name); p.needed && (p.name != "window" || algorithm != stint.AlgorithmFixedWindow) {
				required = append(required, p.name)
			}
		}
		then := schema{"required": required, "propertyNames": schema{"enum": allowed}}
		if algorithm == stint.AlgorithmFixedWindow {
			then["anyOf"] = []any{schema{"required": []any{"window"}}, schema{"required": []any{"calendar"}}}
		}
		choices = append(choices, schema{
			"if":   schema{"properties": schema{"algorithm": schema{"enum": spellings}}, "required": []any{"algorithm"}},
			"then": then,
		})
	}
	properties["algorithm"] = schema{"enum": names}
	return schema{"type": "array", "minItems": 1, "maxItems": bounds.MaxLimits, "items": schema{
		"type": "object", "required": []any{"algorithm"}, "properties": properties, "additionalProperties": false,
		"allOf": choices,
	}}
}

// matching is a text of a pattern.
func matching(pattern string) schema { return schema{"type": "string", "pattern": pattern} }

func integers(least, most int64) schema {
	return schema{"type": "integer", "minimum": least, "maximum": most}
}

func rateSchema() schema { return matching(`^[0-9]+/[0-9.]*[a-zµμ]`) }

// durationSchema is that of a duration: with a unit, or 0.
func durationSchema() schema {
	return schema{"anyOf": []any{matching(`^(0|\+?([0-9.]+[a-zµμ]+)+)$`), schema{"const": 0}}}
}

// ofText is what a text unmarshaler allows, as its error says: words, or any text.
func ofText(field any) schema {
	if reader, is := field.(encoding.TextUnmarshaler); is {
		if words, named := words(document.Allowed(reader.UnmarshalText([]byte("\x00")))); named {
			return schema{"enum": words}
		}
	}
	return schema{"type": "string"}
}

// words are those of a list such as "skip, deny or ip", if it is one.
func words(list string) (all []any, is bool) {
	for part := range strings.SplitSeq(strings.ReplaceAll(list, " or ", ", "), ", ") {
		if part == "" || strings.ContainsAny(part, " :") {
			return nil, false
		}
		all = append(all, part)
	}
	return all, true
}

func ofStruct(of reflect.Type) schema {
	properties := schema{}
	for i := range of.NumField() {
		field := of.Field(i)
		name := field.Tag.Get("doc")
		if name == "" {
			continue
		}
		properties[name] = ofField(field)
		if one := field.Tag.Get("one"); one != "" && one != name {
			properties[one] = schema{"type": "string"}
		}
	}
	whole := object(properties)
	if _, is := properties["id"]; is {
		whole["type"], whole["required"] = "object", []any{"id"}
	}
	return whole
}

// ofField is the schema of what [document.Kinds.Read] takes for a field.
func ofField(field reflect.StructField) schema {
	is := strings.Fields(field.Tag.Get("is"))
	each := reflect.StructTag(`is:"` + field.Tag.Get("each") + `"`)
	switch {
	case len(is) == 0 && field.Type.Kind() == reflect.Map:
		return named(ofField(reflect.StructField{Type: field.Type.Elem(), Tag: each}))
	case len(is) == 0:
		return ofType(field.Type)
	}
	texts := schema{"type": "string", "minLength": 1}
	switch is[0] {
	case "one-of":
		if field.Type.Kind() == reflect.Bool {
			return schema{"type": "boolean"}
		}
		all, _ := words(strings.Join(is[1:], ", "))
		return schema{"enum": all}
	case "integer":
		least, _ := strconv.ParseInt(is[1], 10, 64)
		most, _ := strconv.ParseInt(is[2], 10, 64)
		return integers(least, most)
	case "duration":
		return durationSchema()
	case "rate":
		return rateSchema()
	case "texts":
		return schema{"type": []any{"array", "null"}, "items": texts}
	case "scope":
		of := ofStruct(reflect.TypeFor[networks]())
		of["type"], of["required"] = "object", []any{"per_ip"}
		of["properties"].(schema)["per_ip"].(schema)["minProperties"] = 1
		one := schema{"anyOf": []any{
			matching("^(global|per_ip|per_user|per_api_key|custom:.+)$"), of,
		}}
		return oneOrMore(one)
	case "statuses":
		text := matching("^([1-5][0-9][0-9]|[1-5][xX][xX])$")
		return oneOrMore(schema{"anyOf": []any{integers(100, 599), text}})
	case "values":
		text := schema{"type": "string"}
		return schema{"anyOf": []any{text, schema{"type": "array", "items": text}}}
	case "percent":
		return matching(fmt.Sprintf("^[0-9]{1,%d}%%$", len(is[2])))
	case "start":
		return schema{"const": firstRequest}
	case "debt":
		return integers(0, bounds.MaxPermits)
	case "lease":
		return schema{"type": []any{"string", "integer", "boolean", "null"}}
	case "calendar":
		_, err := notation.ParseCalendar("")
		all, _ := words(strings.TrimPrefix(document.Allowed(err), "one of "))
		return schema{"enum": all}
	case "borrow":
		return schema{"anyOf": []any{schema{"type": "boolean"}, rateSchema(), schema{"enum": []any{"true", "false"}}}}
	case "thousandths":
		return schema{"type": "number", "minimum": 0.001, "maximum": 1_000_000}
	case "cost":
		return costSchema()
	case "count":
		return countSchema()
	case "limits":
		return limitsSchema(costSchema())
	default: // time
		return schema{"type": "string"}
	}
}

func costSchema() schema {
	from := ofStruct(reflect.TypeFor[rules.Cost]())
	from["type"] = "object"
	one := func(name string) any { return schema{"required": []any{name}} }
	from["anyOf"] = []any{one("header"), one("attribute"), one("sum")}
	return schema{"anyOf": []any{integers(1, bounds.MaxPermits), from}}
}

// oneOrMore is an item by itself, or a list of them.
func oneOrMore(one schema) schema {
	return schema{"anyOf": []any{one, schema{"type": "array", "minItems": 1, "items": one}}}
}

// named is a mapping of any names.
func named(of schema) schema {
	return schema{"type": []any{"object", "null"}, "additionalProperties": of}
}

func ofType(of reflect.Type) schema {
	if of == reflect.TypeFor[time.Duration]() {
		return durationSchema()
	}
	if value := reflect.New(of).Interface(); of.Kind() != reflect.Struct {
		if _, is := value.(encoding.TextUnmarshaler); is {
			return ofText(value)
		}
	}
	switch of.Kind() {
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Slice:
		return schema{"type": []any{"array", "null"}, "items": ofType(of.Elem())}
	case reflect.Struct:
		return ofStruct(of)
	default:
		panic(fmt.Sprintf("no schema of %v", of)) // a field of package rules that is new
	}
}
