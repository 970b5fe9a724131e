// Package testredis gives tests a real Redis (or Valkey) of their own, as one
// server, as a cluster or watched over by Sentinel.
//
// Servers listen on a free port of 127.0.0.1, keep nothing on disk unless [Config] says so,
// and die with the process that started them. A test that needs one starts one:
//
//	server := testredis.Start(t)
//
// A package whose tests share one starts it in TestMain:
//
//	var redis *testredis.Server
//
//	func TestMain(m *testing.M) { os.Exit(testredis.Run(m, &redis)) }
//
// They can be killed, paused and restarted, fail over and move slots; and speak TLS with
// certificates of the test's own [Authority].
//
// A machine without the program fails the test; nothing is skipped.
package testredis
