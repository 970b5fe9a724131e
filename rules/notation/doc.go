// Package notation is how limits are written: values with their places, and what is read
// out of them.
//
// A front end makes a [Value] of a text, such as the YAML of rules/file. From it, [Limit]
// and [Limits] take what it says, and record everything that is wrong with it as [Faults],
// each with its place. Reading is strict: an unknown name, a wrong type and a value out of
// range are faults.
package notation
