// Package notation is how limits and rules are written: values with their places, and
// what is read out of them.
//
// A front end makes a [Value] of a text: [ParseJSON], or the YAML of rules/file. From it,
// [Limit], [Limits] and [Rules] take what it says, and record everything that is wrong
// with it as [Faults], each with its place. Reading is strict: an unknown name, a wrong
// type and a value out of range are faults. [JSON] writes a rule in the form that is read
// back as the same rule.
package notation
