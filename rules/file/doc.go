// Package file reads rules from files and folders of YAML and JSON.
//
//	list, positions, err := file.Read("/etc/stint/rules")
//
// A document is a list of rules, or a mapping with such a list under the name rules.
// Reading is strict, and everything that is wrong is reported at once with line and
// column; see package notation. [Watch] follows a path, and keeps the rules that it has while
// what is there can't be used.
package file
