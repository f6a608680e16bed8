package main

func Example_main() {
	main()
	// Output: applied order-1
}
