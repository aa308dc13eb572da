//go:build tools

// Pins the Pulumi CLI, which `go install` refuses to build by version.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
