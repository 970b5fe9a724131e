// Package testmongo gives tests a server of MongoDB's protocol: FerretDB 1, which keeps its
// data in SQLite. It is no MongoDB: it has no change streams, no transactions, and
// reads a document that it changes before it writes it, in two steps.
//
// The server is a program of a module of its own, in the folder server, which is built when a test
// first needs it. It listens on a free port of 127.0.0.1 and dies with the process that
// started it. A package whose tests share one starts it in TestMain:
//
//	var mongo *testmongo.Server
//
//	func TestMain(m *testing.M) { os.Exit(testmongo.Run(m, &mongo)) }
//
// Each test takes a database of its own, [Server.URL].
package testmongo
