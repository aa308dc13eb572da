//go:build tools

// Pins the Python language host, which left this module after v3.79.
package tools

import _ "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"
