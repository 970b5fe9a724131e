package notation

import "github.com/stint-go/stint/document"

// Value is [document.Value].
type Value = document.Value

// Field is [document.Field].
type Field = document.Field

// Kind is [document.Kind].
type Kind = document.Kind

// Position is [document.Position].
type Position = document.Position

// Fault is [document.Fault].
type Fault = document.Fault

// Faults is [document.Faults].
type Faults = document.Faults

// Verbatim is [document.Verbatim].
type Verbatim = document.Verbatim

// The kinds of values, as package document has them.
const (
	KindNull    = document.KindNull
	KindUntyped = document.KindUntyped
	KindText    = document.KindText
	KindInteger = document.KindInteger
	KindFloat   = document.KindFloat
	KindBoolean = document.KindBoolean
	KindList    = document.KindList
	KindMapping = document.KindMapping

	MaxFaults = document.MaxFaults
)

// Setter is [document.Setter].
type Setter = document.Setter

// Text is [document.Text].
func Text(field *string) Setter { return document.Text(field) }

// Boolean is [document.Boolean].
func Boolean(field *bool) Setter { return document.Boolean(field) }

// ParseJSON is [document.JSON].
func ParseJSON(source string, data []byte, faults *Faults) Value {
	return document.JSON(source, data, faults)
}

// Redact is [document.Redact].
func Redact(text string) string { return document.Redact(text) }
