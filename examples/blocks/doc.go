// Package blocks has a job file for each model of the zoo, written in blocks.
package blocks
