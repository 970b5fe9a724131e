module github.com/stint-go/stint/rules/file

go 1.26.0

require (
	github.com/stint-go/stint v0.1.0
	github.com/stint-go/stint/internal/document v0.1.0
)

require (
	github.com/fsnotify/fsnotify v1.9.0 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
