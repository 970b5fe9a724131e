// Package notation is how limits and rules are written in a document: what is read out of its
// values, and written again.
//
// From a [document.Value], [Limit], [Limits] and [Rules] take what it says, and record everything
// that is wrong with it as [document.Faults], each with its place. Reading is strict: an unknown name, a
// wrong type and a value out of range are faults. [JSON] writes a rule in the form that is read
// back as the same rule.
package notation
