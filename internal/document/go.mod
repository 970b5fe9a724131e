module github.com/stint-go/stint/internal/document

go 1.26.0

require (
	github.com/fsnotify/fsnotify v1.9.0
	github.com/stint-go/stint v0.1.0
	go.yaml.in/yaml/v4 v4.0.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.48.0 // indirect
